#pragma once
// Fragments of an accumulator to shared memory (sm_90), and single elements from there.

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

// The 16-bit element at a shared address.
template <typename T>
__device__ __forceinline__ T load_shared(unsigned address) {
  T x;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x.bits) : "r"(address) : "memory");
  return x;
}

}  // namespace kernwright
