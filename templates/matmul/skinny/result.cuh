#pragma once
// The place of a block's tile, and the stores of its result: a unit at a time straight from the
// registers, or tiles of many rows through the memory of the ring.

#include "layout.cuh"
#include <kernwright/math/types.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/matmul/few_rows.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/ptx/warp_roles.cuh>
#include <kernwright/tile/frame.cuh>

namespace {

// Returns the result of this block's product. The arguments are those of the whole batch.
__device__ __forceinline__ FewRows result_of(out_t* d, float alpha, const out_t* bias, float beta,
                                             const out_t* residual, int m, int n, int ldd,
                                             out_t* d_k, out_t* d_v, RowScales scales) {
  d += first_of_batch<long long>(TRANSPOSED ? n : m) * ldd;
  if constexpr (kResidual) residual += first_of_batch<long long>(m) * n;
  if constexpr (kRowScaled) {
    scales.a += first_of_batch<long long>(TRANSPOSED ? n : m);
    scales.b += first_of_batch<long long>(STACK * (TRANSPOSED ? m : n));
  }
  return {d, alpha, bias, beta, residual, m, n, ldd, d_k, d_v, scales};
}

// A tile of D in this block's product: its first rows of a and of b, and its number.
struct Tile {
  FewRows d;
  int row_a, row_b;
  long long number;  // among the tiles of all products

  __device__ Tile(const FewRows& d, int tile_a, int tile_b, int tiles_a, int tiles_b)
      : d(d),
        row_a(tile_a * BM),
        row_b(tile_b * BN),
        number(first_of_batch<long long>(tiles_a) * tiles_b +
               static_cast<long long>(tile_a) * tiles_b + tile_b) {}
};

// The tile and the slice of k of this block. Blocks with neighbouring numbers run on one group of
// multiprocessors, which asks the L2 once for lines that several of them read at about the same
// time. So with `a_first` neighbours are tiles that share rows of b. Clusters go to the groups one
// by one, and the clusters of one slice go to the same group.
struct Place {
  int tile_a, tile_b, tiles_a, tiles_b, slice = 0;

  __device__ explicit Place(bool a_first) {
    if constexpr (SPLIT * CM > 1) {
      slice = blockIdx.x / SPLIT % SLICES;
      tile_b = blockIdx.x / kParts, tiles_b = gridDim.x / kParts;
      tile_a = blockIdx.y, tiles_a = gridDim.y;
    } else {
      const int x = blockIdx.x, tiles_x = gridDim.x, tiles_y = gridDim.y / SLICES;
      if constexpr (SLICES > 1) slice = blockIdx.y / tiles_y;
      const int y = blockIdx.y - slice * tiles_y;
      tile_a = a_first ? x : y, tiles_a = a_first ? tiles_x : tiles_y;
      tile_b = a_first ? y : x, tiles_b = a_first ? tiles_y : tiles_x;
    }
  }
};

// Finishes and stores unit `index` of consumer thread `thread`: two rows of a by two rows of b.
__device__ __forceinline__ void store(const Tile& tile, int index, unsigned thread,
                                      const Unit& unit) {
  const int row_a = tile.row_a + index * 8 + static_cast<int>(thread % 4) * 2;
  const int row_b = tile.row_b + static_cast<int>(thread / 32 * 16 + thread % 32 / 4);
  const float4 &x = unit.sums[0], &other = unit.sums[STACK - 1];
  tile.d.store(row_a, row_b, x.x, other.x);
  tile.d.store(row_a + 1, row_b, x.y, other.y);
  tile.d.store(row_a, row_b + 8, x.z, other.z);
  tile.d.store(row_a + 1, row_b + 8, x.w, other.w);
}

// Returns the address at which a consumer stages row `row` of its tile: 128 bytes in the 128-byte
// swizzle.
__device__ __forceinline__ unsigned staged_row(Addresses at, int consumer, int row) {
  const int box = row / kRowsOfBox;
  const unsigned boxes =
      kMajorB == Major::k
          ? at.b(box / kBoxes) + (box % kBoxes * kRowsB + consumer * kRowsOfBox) * kRowBytes
          : at.b(box / kBoxes) + consumer * kBlockBytesB + box % kBoxes * kRowsOfBox * kRowBytes;
  return boxes + row % kRowsOfBox * kRowBytes;
}

// Finishes the tile and stores it in whole rows; each consumer has 64 columns of d.
template <typename Out>
__device__ __forceinline__ void store_staged(const Tile& tile, const Acc& acc, Addresses at) {
  constexpr int kGroup = 16 / sizeof(Out);  // neighbours in d that one store writes
  const int consumer = warpgroup_number();
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  unsigned words[kFragments][2];  // fragments of 8 rows of a by 8 rows of b
#pragma unroll
  for (int i = 0; i < kFragments; ++i) {
    const int row_a = tile.row_a + i * 8 + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row_b = tile.row_b + consumer * 64 + warp * 16 + half * 8 + lane / 4;
      const float *x = &acc[0][4 * i + 2 * half], *other = &acc[STACK - 1][4 * i + 2 * half];
      words[i][half] = pack_pair<Out>(tile.d.finished(row_a, row_b, x[0], other[0]),
                                      tile.d.finished(row_a + 1, row_b, x[1], other[1]));
    }
  }
  named_barrier_sync(2 + consumer, 128);  // all warps of the consumer have read its rows of b
#pragma unroll
  for (int i = 0; i < kFragments; i += 2) {
    const int first = i + 1 < kFragments ? i : i - 1;  // the last one may be stored twice
    const int row = first * 8 + lane / 16 * 8 + lane % 8, group = warp * 2 + lane / 8 % 2;
    stmatrix_x4_transposed(staged_row(at, consumer, row) + swizzled_group(row, group),
                           words[first][0], words[first][1], words[first + 1][0],
                           words[first + 1][1]);
  }
  named_barrier_sync(2 + consumer, 128);
  const int column = tile.row_b + consumer * 64;
  if (tile.d.in_groups_of(kGroup)) {
#pragma unroll 4
    for (int i = thread; i < BM * 64 / kGroup; i += 128) {
      const int row = i / (64 / kGroup), group = i % (64 / kGroup);
      if (!tile.d.has(tile.row_a + row, column + group * kGroup)) continue;
      *reinterpret_cast<float4*>(tile.d.at(tile.row_a + row, column + group * kGroup)) =
          load_quad(staged_row(at, consumer, row) + swizzled_group(row, group));
    }
  } else {
#pragma unroll 4
    for (int i = thread; i < BM * 64; i += 128) {
      const int row = i / 64, byte = i % 64 * sizeof(Out);
      if (!tile.d.has(tile.row_a + row, column + i % 64)) continue;
      *tile.d.at(tile.row_a + row, column + i % 64) =
          load_shared<Out>(staged_row(at, consumer, row) + swizzled_byte(row, byte));
    }
  }
}

}  // namespace
