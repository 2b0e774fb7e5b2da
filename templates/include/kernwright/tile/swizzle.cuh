#pragma once
// The 128-byte swizzle of shared memory that TMA writes and reads and wgmma reads. A tile consists
// of rows of 128 bytes, which follow each other from a multiple of 1024 on. A row has 8 groups of
// 16 bytes. The swizzle permutes them by row % 8, so that threads that read one column of 8 rows
// use all banks.
//
// Rows of 64 and of 32 bytes have swizzles of their own, by row / 2 % 4 and by row / 4 % 2.
//
// These functions return the place of a group or a byte within its row, for code with ordinary
// loads and stores. The caller adds the address of the row, because in some tiles the rows do not
// follow each other. Row `row` of R bytes must begin row % 8 * R bytes after a multiple of 8 * R.

namespace kernwright {

constexpr int kSwizzleBytes = 128;

// Returns the bytes from the start of the row to its group `group`.
template <int RowBytes = kSwizzleBytes>
__device__ __forceinline__ constexpr int swizzled_group(int row, int group) {
  static_assert(RowBytes == 32 || RowBytes == 64 || RowBytes == 128);
  return (group ^ (RowBytes == 128 ? row & 7 : RowBytes == 64 ? row >> 1 & 3 : row >> 2 & 1)) * 16;
}

// Returns the bytes from the start of the row to its byte `byte`.
__device__ __forceinline__ constexpr int swizzled_byte(int row, int byte) {
  return swizzled_group(row, byte / 16) + byte % 16;
}

}  // namespace kernwright
