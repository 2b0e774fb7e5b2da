#pragma once
// The functions of a problem's formula on fp32 values.

#include <kernwright/math/activation.cuh>

namespace kernwright {

struct FormulaMath {
  using Value = float;

  static __device__ __forceinline__ float abs(float x) { return fabsf(x); }
  // Returns e^x with relative error (3 + |x|) 2^-24; results below 2^-126 become 0.
  static __device__ __forceinline__ float exp(float x) { return exp2_fast(1.44269504f * x); }
  static __device__ __forceinline__ float gelu_erf(float x) { return kernwright::gelu_erf(x); }
  static __device__ __forceinline__ float gelu_tanh(float x) { return kernwright::gelu_tanh(x); }
  static __device__ __forceinline__ float log(float x) { return logf(x); }
  static __device__ __forceinline__ float max(float x, float y) { return larger(x, y); }
  static __device__ __forceinline__ float min(float x, float y) { return smaller(x, y); }
  static __device__ __forceinline__ float relu(float x) { return kernwright::relu(x); }
  static __device__ __forceinline__ float sigmoid(float x) {
    return reciprocal_fast(1.0f + exp(-x));
  }
  static __device__ __forceinline__ float silu(float x) { return kernwright::silu(x); }
  static __device__ __forceinline__ float sqrt(float x) { return sqrtf(x); }
  static __device__ __forceinline__ float tanh(float x) { return tanhf(x); }
};

}  // namespace kernwright
