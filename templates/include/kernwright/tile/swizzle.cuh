#pragma once
// The 128-byte swizzle in which TMA writes and reads shared memory and in which wgmma reads it.
// A tile is rows of 128 bytes, one behind the other, from an address that is a multiple of 1024.
// A row has 8 groups of 16 bytes. The swizzle exchanges them by the row's place among 8, so that
// threads that read one column of 8 rows meet all banks.
//
// Whoever touches such a tile by ordinary instructions asks here where a group or a byte lies. The
// answers count from the row's first byte, so that rows may also be apart from each other, as long
// as each lies where the 8 rows of its kind would have it.

namespace kernwright {

constexpr int kSwizzleBytes = 128;

// Where group `group` of a row lies. `row` counts from a multiple of 1024 bytes.
__device__ __forceinline__ constexpr int swizzled_group(int row, int group) {
  return (group ^ (row & 7)) * 16;
}

// Where byte `byte` of a row lies.
__device__ __forceinline__ constexpr int swizzled_byte(int row, int byte) {
  return swizzled_group(row, byte / 16) + byte % 16;
}

}  // namespace kernwright
