#pragma once
// Storage types of 16-bit and 8-bit floats, conversions of these and of integers, and the larger
// and the smaller of two numbers. Arithmetic is in fp32, so a few cvt instructions replace the
// toolkit's headers, which would dominate the compile time.

namespace kernwright {

struct bf16 {
  unsigned short bits;
};
struct fp16 {
  unsigned short bits;
};
struct fp8_e4m3 {
  unsigned char bits;
};
struct fp8_e5m2 {
  unsigned char bits;
};

template <typename T>
constexpr bool kIsInt8 = false;
template <>
constexpr bool kIsInt8<signed char> = true;

// The type in which a reference writes an output of T: integers of 32 and 64 bits are not
// converted.
template <typename T>
struct Reference {
  using Type = float;
};
template <>
struct Reference<int> {
  using Type = long long;
};
template <>
struct Reference<long long> {
  using Type = long long;
};
template <typename T>
using reference_t = typename Reference<T>::Type;

// Return NaN if either is NaN, unlike CUDA's fmaxf, fminf, max and min, which return the other one.
__device__ __forceinline__ float larger(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
__device__ __forceinline__ float smaller(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
__device__ __forceinline__ double larger(double a, double b) { return a > b || a != a ? a : b; }
__device__ __forceinline__ double smaller(double a, double b) { return a < b || a != a ? a : b; }

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
#if __CUDA_ARCH__ >= 890
  unsigned pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<unsigned short>(x.bits)));
  return to_float(fp16{static_cast<unsigned short>(pair)});
#else  // the bits at the top of an fp32 make a value 2^120 too small
  const unsigned magnitude = x.bits & 0x7f;
  const float value =
      magnitude == 0x7f ? __uint_as_float(0x7fffffff) : __uint_as_float(magnitude << 20) * 0x1p120f;
  return x.bits & 0x80 ? -value : value;
#endif
}

// An fp8_e5m2 is the upper half of an fp16.
__device__ __forceinline__ float to_float(fp8_e5m2 x) {
  return to_float(fp16{static_cast<unsigned short>(x.bits << 8)});
}
// Integers beyond 2^24 are rounded; kernels that need them exact do not convert them.
__device__ __forceinline__ float to_float(signed char x) { return x; }
__device__ __forceinline__ float to_float(unsigned char x) { return x; }
__device__ __forceinline__ float to_float(bool x) { return x; }
__device__ __forceinline__ float to_float(int x) { return static_cast<float>(x); }
__device__ __forceinline__ float to_float(long long x) { return static_cast<float>(x); }

#if __CUDA_ARCH__ < 890
// Returns the bits of `x` in an fp8 with `Mantissa` bits of mantissa. Newer architectures have an
// instruction for it.
template <int Mantissa>
__device__ __forceinline__ unsigned encode_fp8(float x) {
  constexpr int kShift = 23 - Mantissa, kBias = Mantissa == 3 ? 7 : 15;
  constexpr float kLargest = Mantissa == 3 ? 448.0f : 57344.0f;
  constexpr float kLeastNormal = Mantissa == 3 ? 0x1p-6f : 0x1p-14f;
  const unsigned sign = __float_as_uint(x) >> 24 & 0x80;
  if (x != x) return sign | 0x7f;
  const float magnitude = smaller(fabsf(x), kLargest);
  if (magnitude < kLeastNormal) {
    return sign | __float2uint_rn(magnitude * ((1 << Mantissa) / kLeastNormal));
  }
  const unsigned bits = __float_as_uint(magnitude);
  return sign | (((bits + (1u << (kShift - 1)) - 1 + (bits >> kShift & 1)) >> kShift) -
                 ((127 - kBias) << Mantissa));
}
#endif

// Rounds to nearest even. fp8_e4m3 saturates to +-448, fp8_e5m2 to +-57344, an integer to its
// range. NaN stays NaN; in an integer it becomes 0. A bool is true for all values except 0 and NaN.
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
#if __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return fp8_e4m3{static_cast<unsigned char>(pair)};
#else
  return fp8_e4m3{static_cast<unsigned char>(encode_fp8<3>(x))};
#endif
}
template <>
__device__ __forceinline__ fp8_e5m2 from_float<fp8_e5m2>(float x) {
#if __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return fp8_e5m2{static_cast<unsigned char>(pair)};
#else
  return fp8_e5m2{static_cast<unsigned char>(encode_fp8<2>(x))};
#endif
}

template <>
__device__ __forceinline__ signed char from_float<signed char>(float x) {
  return static_cast<signed char>(__float2int_rn(smaller(larger(x, -128.0f), 127.0f)));
}
template <>
__device__ __forceinline__ unsigned char from_float<unsigned char>(float x) {
  return static_cast<unsigned char>(__float2int_rn(smaller(larger(x, 0.0f), 255.0f)));
}
template <>
__device__ __forceinline__ bool from_float<bool>(float x) {
  return x != 0 && x == x;
}
template <>
__device__ __forceinline__ int from_float<int>(float x) {
  return __float2int_rn(x);
}
template <>
__device__ __forceinline__ long long from_float<long long>(float x) {
  return x == x ? __float2ll_rn(x) : 0;
}

// Returns the bits of an element as stored.
template <typename T>
__device__ __forceinline__ unsigned bits_of(T x) {
  return x.bits;
}
__device__ __forceinline__ unsigned bits_of(signed char x) { return static_cast<unsigned char>(x); }
__device__ __forceinline__ unsigned bits_of(unsigned char x) { return x; }
__device__ __forceinline__ unsigned bits_of(bool x) { return x; }

// Returns the two elements of a word as floats; the first is in the low half.
template <typename T>
__device__ __forceinline__ float2 unpack_pair(unsigned word) {
  static_assert(sizeof(T) == 2);
  return {to_float(T{static_cast<unsigned short>(word)}),
          to_float(T{static_cast<unsigned short>(word >> 16)})};
}

// A word holds one fp32 or two 16-bit elements. ones_word() has ones, and add_words() is the sum of
// two words, rounded once.
template <typename T>
__device__ __forceinline__ unsigned ones_word() {
  static_assert(sizeof(T) == 4);
  return 0x3f800000;
}
template <>
__device__ __forceinline__ unsigned ones_word<bf16>() {
  return 0x3f803f80;
}
template <>
__device__ __forceinline__ unsigned ones_word<fp16>() {
  return 0x3c003c00;
}

template <typename T>
__device__ __forceinline__ unsigned add_words(unsigned a, unsigned b) {
  static_assert(sizeof(T) == 4);
  return __float_as_uint(__uint_as_float(a) + __uint_as_float(b));
}
template <>
__device__ __forceinline__ unsigned add_words<bf16>(unsigned a, unsigned b) {
  unsigned sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(ones_word<bf16>()), "r"(b));
  return sum;
}
template <>
__device__ __forceinline__ unsigned add_words<fp16>(unsigned a, unsigned b) {
  unsigned sum;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  return sum;
}

// Returns a * b + c of words of 16-bit elements, each rounded once.
template <typename T>
__device__ __forceinline__ unsigned multiply_add_words(unsigned a, unsigned b, unsigned c);
template <>
__device__ __forceinline__ unsigned multiply_add_words<bf16>(unsigned a, unsigned b, unsigned c) {
  unsigned sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}
template <>
__device__ __forceinline__ unsigned multiply_add_words<fp16>(unsigned a, unsigned b, unsigned c) {
  unsigned sum;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

// Returns the products of two words of 16-bit elements, each rounded once.
template <typename T>
__device__ __forceinline__ unsigned multiply_words(unsigned a, unsigned b) {
  return multiply_add_words<T>(a, b, 0x80008000);
}

// Widens the four fp8_e4m3 of a word to fp16, which holds them exactly: the first two in `low`, the
// others in `high`.
__device__ __forceinline__ void widen_e4m3(unsigned word, unsigned& low, unsigned& high) {
#if __CUDA_ARCH__ >= 890
  asm("{ .reg .b16 first, second;\n"
      "mov.b32 {first, second}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, first;\n"
      "cvt.rn.f16x2.e4m3x2 %1, second; }"
      : "=r"(low), "=r"(high)
      : "r"(word));
#else  // the bits below the sign of an fp16 make a value 2^8 too small
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const unsigned bytes = __byte_perm(word, 0, pair == 0 ? 0x1404 : 0x3424);  // each << 8
    const unsigned magnitude = bytes & 0x7f007f00;
    unsigned wide = (bytes & 0x80008000) | magnitude >> 1;
    asm("mul.f16x2 %0, %1, %2;" : "=r"(wide) : "r"(wide), "r"(0x5c005c00));
    wide |= __vcmpeq2(magnitude, 0x7f007f00) & 0x7fff7fff;  // NaN
    (pair == 0 ? low : high) = wide;
  }
#endif
}

// Returns two neighbours, rounded, in one word, the first in the low half. This takes one cvt.
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
template <>  // two bytes, in the low half
__device__ __forceinline__ unsigned pack_pair<fp8_e4m3>(float first, float second) {
#if __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
  return pair;
#else
  return encode_fp8<3>(first) | encode_fp8<3>(second) << 8;
#endif
}
template <>  // the same
__device__ __forceinline__ unsigned pack_pair<fp8_e5m2>(float first, float second) {
#if __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
  return pair;
#else
  return encode_fp8<2>(first) | encode_fp8<2>(second) << 8;
#endif
}
template <>  // the same
__device__ __forceinline__ unsigned pack_pair<signed char>(float first, float second) {
  return bits_of(from_float<signed char>(first)) | bits_of(from_float<signed char>(second)) << 8;
}
template <>  // the same
__device__ __forceinline__ unsigned pack_pair<unsigned char>(float first, float second) {
  return bits_of(from_float<unsigned char>(first)) | bits_of(from_float<unsigned char>(second))
                                                         << 8;
}
template <>  // the same
__device__ __forceinline__ unsigned pack_pair<bool>(float first, float second) {
  return bits_of(from_float<bool>(first)) | bits_of(from_float<bool>(second)) << 8;
}

// Returns four neighbours, rounded to fp8_e4m3, in one word.
__device__ __forceinline__ unsigned pack_quad_e4m3(float a, float b, float c, float d) {
  return pack_pair<fp8_e4m3>(a, b) | pack_pair<fp8_e4m3>(c, d) << 16;
}

}  // namespace kernwright
