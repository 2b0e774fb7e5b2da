#pragma once
// The activation that the problem's flag names, or none.

#include <kernwright/config.cuh>
#include <kernwright/math/activation.cuh>

namespace kernwright {

__device__ __forceinline__ float activate(float x) {
  using namespace config;
  if constexpr (activation == activation_gelu_tanh) return gelu_tanh(x);
  if constexpr (activation == activation_gelu_erf) return gelu_erf(x);
  if constexpr (activation == activation_silu) return silu(x);
  return x;
}

}  // namespace kernwright
