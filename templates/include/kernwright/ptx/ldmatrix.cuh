#pragma once
// Loads fragments of mma.sync from shared memory.

namespace kernwright {

// Loads four 8x8 matrices of 16-bit elements. Lane l passes the shared address of row l % 8 of
// matrix l / 8 (16 bytes, aligned). fragment[i] holds elements 2 * (l % 4) and 2 * (l % 4) + 1 of
// row l / 4 of matrix i.
__device__ __forceinline__ void ldmatrix_x4(unsigned (&fragment)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(address)
               : "memory");
}

// Loads them transposed: fragment[i] holds column l / 4 of rows 2 * (l % 4) and 2 * (l % 4) + 1.
__device__ __forceinline__ void ldmatrix_transposed_x4(unsigned (&fragment)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(address)
               : "memory");
}

}  // namespace kernwright
