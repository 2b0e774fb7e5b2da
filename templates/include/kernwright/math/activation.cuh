#pragma once
// Activations on fp32 values, without branches and with at most two operations of the special
// function unit (ex2, rcp), so that kernels on 16-bit rows stay limited by the memory. The
// activation of NaN is NaN.

#include <kernwright/math/exp.cuh>
#include <kernwright/math/types.cuh>

namespace kernwright {

__device__ __forceinline__ float reciprocal_fast(float x) {  // 1 ulp; 0 beyond 2^126
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Returns max(x, 0).
__device__ __forceinline__ float relu(float x) { return larger(x, 0.0f); }

// Returns max(x, 0)^2.
__device__ __forceinline__ float relu_squared(float x) {
  const float y = relu(x);
  return y * y;
}

// Returns x / (1 + exp(-x)), relative error (3 + |x|) 2^-24; for -inf it returns NaN as the formula
// does.
__device__ __forceinline__ float silu(float x) {
  return x * reciprocal_fast(1.0f + exp2_fast(-1.44269504f * x));
}

// Returns x / 2 (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3). That is x / (1 + exp(-2
// u)), which does not cancel when tanh nears -1: relative error (4 + 3 |u|) 2^-24; for -inf it
// returns NaN.
__device__ __forceinline__ float gelu_tanh(float x) {
  const float exponent = x * fmaf(x * x, -0.102943240f, -2.30220819f);  // -2 u / ln 2
  return x * reciprocal_fast(1.0f + exp2_fast(exponent));
}

// Returns x / 2 (1 + erf(x / sqrt 2)) = max(x, 0) - |x| Q(|x|), where Q, the upper tail of the
// normal distribution, is 2^-(1 + t p(t)): its logarithm is smooth enough for a polynomial of
// degree 7, fitted over 0 <= t <= 7 and decreasing beyond: relative error of Q at most 1.3e-7 (1 +
// t^2)^2.5, so the whole is within 8 2^-24 |x| / 2 (1 + |erf|).
__device__ __forceinline__ float gelu_erf(float x) {
  const float t = smaller(fabsf(x), 16.0f);
  float p = -5.77541623e-7f;
  p = fmaf(p, t, 1.07225708e-5f);
  p = fmaf(p, t, -4.51911387e-5f);
  p = fmaf(p, t, -4.76890820e-4f);
  p = fmaf(p, t, 7.48480621e-3f);
  p = fmaf(p, t, -5.27557377e-2f);
  p = fmaf(p, t, -0.459137764f);
  p = fmaf(p, t, -1.15111127f);
  return fmaf(-t, exp2_fast(fmaf(p, t, -1.0f)), relu(x));
}

}  // namespace kernwright
