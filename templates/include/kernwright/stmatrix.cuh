#pragma once
// What threads hold of an accumulator to shared memory (sm_90).

namespace kernwright {

// Four 8x8 matrices of 16-bit elements; lane l gives the shared address of row l % 8 of matrix l /
// 8 (16 bytes, aligned), and fragment[i] holds elements 2 * (lane % 4) and the next of row lane / 4
// of matrix i.
__device__ __forceinline__ void stmatrix_x4(unsigned address, unsigned f0, unsigned f1, unsigned f2,
                                            unsigned f3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(f0), "r"(f1), "r"(f2), "r"(f3)
               : "memory");
}

// Stores 2 or 4 words at a shared address that is a multiple of their size.
template <int Words>
__device__ __forceinline__ void store_shared(unsigned address, const unsigned* words) {
  static_assert(Words == 2 || Words == 4);
  if constexpr (Words == 2) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(words[0]), "r"(words[1])
                 : "memory");
  } else {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words[0]),
                 "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
  }
}

}  // namespace kernwright
