#pragma once
// The activation that the problem's flag names, or none, for references: in fp64.

#include <kernwright/config.cuh>
#include <kernwright/math/activation_reference.cuh>

namespace kernwright {

// The steepest slope of an activation: derivatives stay below 1.13 (gelu) and 1.1 (silu). An error
// of the sum is at most this much larger after it.
constexpr float kSteepest = config::activation == config::activation_none ? 1.0f : 1.13f;

__device__ inline double activate(double x) {
  using namespace config;
  if constexpr (activation == activation_gelu_tanh) return reference_gelu_tanh(x).value;
  if constexpr (activation == activation_gelu_erf) return reference_gelu_erf(x).value;
  if constexpr (activation == activation_silu) return reference_silu(x).value;
  return x;
}

}  // namespace kernwright
