#pragma once
// Fragments of an accumulator to shared memory (sm_90).

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

}  // namespace kernwright
