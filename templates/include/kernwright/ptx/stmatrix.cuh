#pragma once
// Stores fragments of an accumulator to shared memory (sm_90), and loads elements and pairs from
// it.

#include <kernwright/math/types.cuh>

namespace kernwright {

// Stores four 8x8 matrices of 16-bit elements. Lane l passes the shared address of row l % 8 of
// matrix l / 8 (16 bytes, aligned). Word fi holds elements 2 * (l % 4) and 2 * (l % 4) + 1 of row l
// / 4 of matrix i.
__device__ __forceinline__ void stmatrix_x4(unsigned address, unsigned f0, unsigned f1, unsigned f2,
                                            unsigned f3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(f0), "r"(f1), "r"(f2), "r"(f3)
               : "memory");
}

// Stores them transposed: row l % 8 in memory is a column of the matrix. Word fi holds elements 2 *
// (l % 4) and 2 * (l % 4) + 1 of row l / 4 of the matrix.
__device__ __forceinline__ void stmatrix_x4_transposed(unsigned address, unsigned f0, unsigned f1,
                                                       unsigned f2, unsigned f3) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(f0), "r"(f1), "r"(f2), "r"(f3)
      : "memory");
}

// Stores two words to a shared address that is a multiple of 8.
__device__ __forceinline__ void store_shared_pair(unsigned address, unsigned first,
                                                  unsigned second) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(first), "r"(second)
               : "memory");
}

// Loads the element at a shared address.
template <typename T>
__device__ __forceinline__ T load_shared(unsigned address) {
  T x;
  if constexpr (sizeof(T) == 2) {
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x.bits) : "r"(address) : "memory");
  } else {
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
  }
  return x;
}

// Load two neighbours at a shared address that is a multiple of their size.
template <typename T>
__device__ __forceinline__ float2 load_shared_pair(unsigned address) {
  float2 x;
  if constexpr (sizeof(T) == 2) {
    unsigned word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    x = unpack_pair<T>(word);
  } else {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(x.x), "=f"(x.y)
                 : "r"(address)
                 : "memory");
  }
  return x;
}

// Loads four words at a shared address that is a multiple of 16.
__device__ __forceinline__ float4 load_quad(unsigned address) {
  float4 x;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(address)
               : "memory");
  return x;
}
__device__ __forceinline__ void store_quad(unsigned address, const float4& x) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x.x), "f"(x.y),
               "f"(x.z), "f"(x.w)
               : "memory");
}

// Loads a number at a shared address that is a multiple of 4.
__device__ __forceinline__ int load_number(unsigned address) {
  int x;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
  return x;
}
__device__ __forceinline__ void store_number(unsigned address, int x) {
  asm volatile("st.shared.s32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}

}  // namespace kernwright
