#pragma once
// mma.sync over 32 bytes of k with fp32 accumulation (sm_80 and newer).

#include <kernwright/math/types.cuh>

namespace kernwright {

// Computes d[16, 8] += a[16, 16] * b[8, 16]^T. In each lane a holds words of the 8x8 quarters (rows
// 0, k 0), (rows 8, k 0), (rows 0, k 8), (rows 8, k 8), and b words of the halves k 0 and k 8.
// d[0..1] are in row lane / 4 and d[2..3] in row lane / 4 + 8, in columns 2 * (lane % 4) and 2 *
// (lane % 4) + 1. fp32 has half as many k, one in a word, and is taken as tf32: the bits after the
// tenth of the fraction are cut off. int8 has twice as many k, four in a word, and d has the bits
// of int32.
template <typename T>
__device__ __forceinline__ void mma_m16n8(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                          unsigned b1);
template <>
__device__ __forceinline__ void mma_m16n8<bf16>(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                                unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void mma_m16n8<fp16>(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                                unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void mma_m16n8<float>(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                                 unsigned b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void mma_m16n8<signed char>(float (&d)[4], const unsigned (&a)[4],
                                                       unsigned b0, unsigned b1) {
  int(&bits)[4] = reinterpret_cast<int(&)[4]>(d);
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(bits[0]), "+r"(bits[1]), "+r"(bits[2]), "+r"(bits[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace kernwright
