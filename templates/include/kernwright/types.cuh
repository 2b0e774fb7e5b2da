#pragma once
// Storage types of 16-bit and 8-bit floats and their conversions. Arithmetic is done in fp32 only,
// so a few cvt instructions take the place of the toolkit's headers, which would dominate the
// compile time.

namespace kernwright {

struct bf16 {
  unsigned short bits;
};
struct fp16 {
  unsigned short bits;
};
struct fp8_e4m3 {  // converting needs sm_89 or newer
  unsigned char bits;
};

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bf16 x) {
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
}
__device__ __forceinline__ float to_float(fp16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
__device__ __forceinline__ float to_float(fp8_e4m3 x) {
  unsigned pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<unsigned short>(x.bits)));
  return to_float(fp16{static_cast<unsigned short>(pair)});
}

// Rounds to nearest even; fp8_e4m3 saturates to +-448.
template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float x) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
template <>
__device__ __forceinline__ fp16 from_float<fp16>(float x) {
  fp16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
template <>
__device__ __forceinline__ fp8_e4m3 from_float<fp8_e4m3>(float x) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return fp8_e4m3{static_cast<unsigned char>(pair)};
}

// Two neighbours in one word, the first in the low half: one cvt instead of two and a shift.
template <typename T>
__device__ __forceinline__ unsigned pack_pair(float first, float second);
template <>
__device__ __forceinline__ unsigned pack_pair<bf16>(float first, float second) {
  unsigned word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
}
template <>
__device__ __forceinline__ unsigned pack_pair<fp16>(float first, float second) {
  unsigned word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
}

}  // namespace kernwright
