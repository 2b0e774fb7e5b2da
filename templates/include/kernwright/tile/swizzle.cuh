#pragma once
// The 128-byte swizzle in which TMA writes and reads shared memory and in which wgmma reads it.
// A tile is rows of 128 bytes, one behind the other, from an address that is a multiple of 1024.
// A row has 8 groups of 16 bytes. The swizzle exchanges them by the row's place among 8, so that
// threads that read one column of 8 rows meet all banks.
//
// Code that touches such a tile by ordinary instructions asks here where in its row a group or a
// byte lies. Adding the address of the row is left to the caller, since the rows of some tiles do
// not follow each other. Row `row` must begin row % 8 * 128 bytes behind a multiple of 1024.

namespace kernwright {

constexpr int kSwizzleBytes = 128;

// Bytes from the start of the row to its group `group`.
__device__ __forceinline__ constexpr int swizzled_group(int row, int group) {
  return (group ^ (row & 7)) * 16;
}

// Bytes from the start of the row to its byte `byte`.
__device__ __forceinline__ constexpr int swizzled_byte(int row, int byte) {
  return swizzled_group(row, byte / 16) + byte % 16;
}

}  // namespace kernwright
