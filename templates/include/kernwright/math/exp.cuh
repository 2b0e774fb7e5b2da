#pragma once
// Exponentials by one operation of the special function unit. Results below 2^-126 are 0; for NaN
// they are NaN.

namespace kernwright {

// Returns 2^x, to 2 ulp. If the exponent is multiplied by a factor anyway, log2(e) can be a part of
// the factor, provided that no product overflows: then this is e^x without a multiplication of its
// own.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Returns e^x, to 2 ulp of the exponent's product.
__device__ __forceinline__ float exp_fast(float x) { return exp2_fast(x * 1.4426950408889634f); }

}  // namespace kernwright
