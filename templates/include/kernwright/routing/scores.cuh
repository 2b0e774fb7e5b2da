#pragma once
// The scores by which experts are chosen. They are fp32 numbers whose bits depend on the logits
// alone, neither on a template nor on how many lanes share a token: so ids can be compared exactly.
// References compute what a choice compares by these functions too, and nothing else.

#include <kernwright/config.cuh>
#include <kernwright/math/activation.cuh>
#include <kernwright/math/exp.cuh>
#include <kernwright/math/types.cuh>

namespace kernwright {

// Returns the logit that counts: with softcap=tanh it stays between -cap and cap.
__device__ __forceinline__ float capped(float x, float cap) {
  if constexpr (config::softcap == config::softcap_tanh) return __fmul_rn(cap, tanhf(x / cap));
  return x;
}

// Returns the score of a logit, for scores that depend on no other logit.
__device__ __forceinline__ float score_alone(float x) {
  if constexpr (config::score == config::score_sigmoid) {
    return reciprocal_fast(1.0f + exp2_fast(-1.44269504f * x));
  } else if constexpr (config::score == config::score_sqrt_softplus) {
    return __fsqrt_rn(__fadd_rn(relu(x), log1pf(exp_fast(-fabsf(x)))));
  } else {
    return x;
  }
}

// The sum of e^(x - most) over the logits of a token, in units of 2^-40: integers make the same sum
// in every order. A NaN among the logits makes `most` NaN, and with it every score.
using ExponentialSum = unsigned long long;

__device__ __forceinline__ ExponentialSum in_units(float exponential) {
  return __float2ull_rn(exponential * 0x1p40f);
}

// Returns e^(x - most) divided by that sum.
__device__ __forceinline__ float softmax_score(float x, float most, ExponentialSum sum) {
  return __fmul_rn(exp_fast(x - most), 0x1p40f / __ull2float_rn(sum));
}

// Returns a number that is larger for a larger value, largest for NaN, equal for 0 and -0, and
// never 0.
__device__ __forceinline__ unsigned order_of(float x) {
  if (x != x) return 0xffffffffu;
  const unsigned bits = __float_as_uint(x == 0 ? 0.0f : x);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// Returns the value of a number from `order_of`.
__device__ __forceinline__ float value_of(unsigned order) {
  return __uint_as_float(order >> 31 ? order & 0x7fffffffu : ~order);
}

}  // namespace kernwright
