#pragma once
// Transposes tiles of values, which have a row for each key, in shared memory: fp8 operands of
// wgmma must be K-major, and K are the keys.
//
// ldmatrix moves units of two bytes, which are two columns of a key, and a lane gets the units of
// two keys. From two such matrices a lane makes four keys of one column and four keys of its
// neighbour. So
//
//   keys      are in the order of round_fp8_operand: bytes 4c to 4c + 3 of each 16 are keys 2c,
//             2c + 1, 2c + 8 and 2c + 9
//   columns   of each 16 have the even ones first (fp8_columns)

#include "layout.cuh"
#include <kernwright/ptx/ldmatrix.cuh>
#include <kernwright/ptx/stmatrix.cuh>

namespace {

// Returns a mask of bytes: which of four keys in the order above are in [begin, end). Key 0 is the
// first of the 16.
__device__ __forceinline__ unsigned seen_bytes(int begin, int end) {
  unsigned mask = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int key = threadIdx.x % 4 * 2 + i % 2 + i / 2 * 8;
    if (key >= begin && key < end) mask |= 0xffu << 8 * i;
  }
  return mask;
}

// Transposes a tile, of which only the keys [begin, end) are seen: others become zeros. Run by
// TRANSPOSERS warps: the warps beside the one that loads, or a block of the previous kernel.
__device__ __forceinline__ void transpose(unsigned from, unsigned to, int begin, int end,
                                          int warp) {
  constexpr int kGroups = kColumns / 16;  // of 16 columns
  constexpr int kBatch = kGroups % 4 == 0 ? 4 : kGroups % 2 == 0 ? 2 : 1;
  constexpr int kBatches = kGroups / kBatch;
  const int lane = threadIdx.x % 32;
  const bool is_whole = begin <= 0 && end >= BN;
#pragma unroll 1
  for (int unit = warp; unit < BN / 32 * kBatches; unit += TRANSPOSERS) {
    const int block = unit / kBatches, first = unit % kBatches * kBatch;  // 32 keys, 16 columns
    unsigned words[kBatch][4];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int key = block * 32 + lane, group = first + i;
      ldmatrix_transposed_x4(
          words[i], from + (group / 8 * BN + key) * kSwizzleBytes + swizzled_group(key, group % 8));
    }
    unsigned masks[2] = {~0u, ~0u};
    if (!is_whole) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int key = block * 32 + i * 16;
        masks[i] = seen_bytes(begin - key, end - key);
      }
    }
    // Lane l has the address of row l % 8 of matrix l / 8: even columns, odd ones, and the same for
    // 16 more keys.
    const int keys = block * 2 + lane / 16;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const unsigned(&w)[4] = words[i];
      const int row = (first + i) * 16 + lane % 16;
      stmatrix_x4(
          to + (keys / 8 * kColumns + row) * kSwizzleBytes + swizzled_group(row, keys % 8),
          __byte_perm(w[0], w[1], 0x6420) & masks[0], __byte_perm(w[0], w[1], 0x7531) & masks[0],
          __byte_perm(w[2], w[3], 0x6420) & masks[1], __byte_perm(w[2], w[3], 0x7531) & masks[1]);
    }
  }
}

}  // namespace
