#pragma once
// Rows of gates and of what they open, by the names of templates of gated_activation.

#include <kernwright/config.cuh>
#include <kernwright/math/activation.cuh>

namespace kernwright::gated {

using namespace kernwright::config;

constexpr bool kPacked = layout == layout_packed;
constexpr long long kPitch = static_cast<long long>(kPacked ? 2 : 1) * columns;

__device__ __forceinline__ float activate(float x) {
  if constexpr (activation == activation_gelu_tanh) return gelu_tanh(x);
  if constexpr (activation == activation_gelu_erf) return gelu_erf(x);
  if constexpr (activation == activation_relu) return relu(x);
  return silu(x);
}

}  // namespace kernwright::gated
