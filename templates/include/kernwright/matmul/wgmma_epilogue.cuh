#pragma once
// What matrix products on wgmma accumulators (wgmma.cuh) do with their sums before they round them,
// from shared memory: d[i] holds the sums of block i of 64 rows.

#include <kernwright/math/types.cuh>
#include <kernwright/matmul/epilogue.cuh>
#include <kernwright/ptx/ldmatrix.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/tile/swizzle.cuh>
#include <kernwright/tile/tile_store.cuh>
#include <kernwright/tile/wgmma_tile.cuh>

namespace kernwright {

// Adds one value per column, `columns` being the shared address of the first.
template <typename T, int Blocks, int Registers>
__device__ __forceinline__ void add_columns(float (&d)[Blocks][Registers], unsigned columns) {
#pragma unroll
  for (int j = 0; j < Registers / 4; ++j) {
    const float2 x = load_shared_pair<T>(columns + (j * 8 + threadIdx.x % 4 * 2) * sizeof(T));
#pragma unroll
    for (int i = 0; i < Blocks; ++i) {
      d[i][4 * j] += x.x;
      d[i][4 * j + 1] += x.y;
      d[i][4 * j + 2] += x.x;
      d[i][4 * j + 3] += x.y;
    }
  }
}

template <int Blocks, int Registers>
__device__ __forceinline__ void scale_all(float (&d)[Blocks][Registers], float alpha) {
#pragma unroll
  for (int i = 0; i < Blocks; ++i) {
#pragma unroll
    for (int j = 0; j < Registers; ++j) d[i][j] *= alpha;
  }
}

template <int Blocks, int Registers>
__device__ __forceinline__ void activate_all(float (&d)[Blocks][Registers]) {
#pragma unroll
  for (int i = 0; i < Blocks; ++i) {
#pragma unroll
    for (int j = 0; j < Registers; ++j) d[i][j] = activate(d[i][j]);
  }
}

// Makes the first half of the columns the elements of a gated product: they are its gates, and what
// these open is the other half.
template <int Blocks, int Registers>
__device__ __forceinline__ void gate_all(float (&d)[Blocks][Registers], float alpha) {
  constexpr int kHalf = Registers / 2;
  static_assert(kHalf % 4 == 0, "whole groups of 8 columns");
#pragma unroll
  for (int i = 0; i < Blocks; ++i) {
#pragma unroll
    for (int j = 0; j < kHalf; ++j) d[i][j] = gated(alpha, d[i][j], d[i][j + kHalf]);
  }
}

// Gives the first `Used` sums of each block to the problem's function; `row` and `column` are those
// of the warp's first. It gets what lies beyond the last row and column too, to be dropped.
template <int Used, int Blocks, int Registers>
__device__ __forceinline__ void user_epilogue_all(float (&d)[Blocks][Registers], int row,
                                                  int column) {
  row += accumulator_row();
  column += accumulator_column();
#pragma unroll
  for (int i = 0; i < Blocks; ++i) {
#pragma unroll
    for (int j = 0; j < Used; ++j) {
      d[i][j] = user_epilogue(d[i][j], row + i * 64 + register_row(j), column + register_column(j));
    }
  }
}

// Adds `factor` times 128 bytes of columns from `first` on of the warp's 16 rows of one block,
// which lie at shared address `rows` in the 128-byte swizzle. Columns before `begin` are left
// alone. Both are known to the compiler.
template <typename T, int Registers>
__device__ __forceinline__ void add_rows(float (&d)[Registers], unsigned rows, int first, int begin,
                                         float factor) {
  const auto add = [&](int i, float2 x) {
    d[first / 2 + i] += factor * x.x;
    d[first / 2 + i + 1] += factor * x.y;
  };
  if constexpr (sizeof(T) == 2) {
    const int lane = threadIdx.x % 32, line = lane % 16, half = lane / 16;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (first + j * 16 + 8 < begin) continue;
      unsigned words[4];  // two of each 8 columns
      ldmatrix_x4(words, rows + line * kSwizzleBytes + swizzled_group(line, 2 * j + half));
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        if (first + j * 16 + w / 2 * 8 < begin) continue;
        add(j * 8 + 2 * w, unpack_pair<T>(words[w]));
      }
    }
  } else {
#pragma unroll
    for (int pair = 0; pair < 8; ++pair) {
      if (first + pair / 2 * 8 < begin) continue;
      add(2 * pair, load_shared_pair<T>(swizzled_pair(rows, pair)));
    }
  }
}

}  // namespace kernwright
