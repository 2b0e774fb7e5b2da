#pragma once
// The epilogue of matrix products on wgmma accumulators (wgmma_tile.cuh): scales, bias, activation,
// gate, residual and the user's function, with scales of columns, bias and residual in shared
// memory. d[i] holds the sums of block i of 64 rows.

#include <kernwright/math/types.cuh>
#include <kernwright/matmul/epilogue.cuh>
#include <kernwright/ptx/ldmatrix.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/tile/swizzle.cuh>
#include <kernwright/tile/tile_store.cuh>
#include <kernwright/tile/wgmma_tile.cuh>

namespace kernwright {

// Adds one value to each column; `columns` is the shared address of the first value.
template <typename T, int Blocks, int Registers>
__device__ __forceinline__ void add_columns(float (&d)[Blocks][Registers], unsigned columns) {
#pragma unroll
  for (int j = 0; j < Registers / 4; ++j) {
    const float2 x = load_shared_pair<T>(columns + (j * 8 + threadIdx.x % 4 * 2) * sizeof(T));
#pragma unroll
    for (int i = 0; i < Blocks; ++i) {
      d[i][4 * j] = plus(d[i][4 * j], 1, x.x);
      d[i][4 * j + 1] = plus(d[i][4 * j + 1], 1, x.y);
      d[i][4 * j + 2] = plus(d[i][4 * j + 2], 1, x.x);
      d[i][4 * j + 3] = plus(d[i][4 * j + 3], 1, x.y);
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

// Multiplies each element by the scales of its row and of its column. `of_rows` has the
// thread's, two in each block, and `columns` is the shared address of the first column's.
template <int Blocks, int Registers>
__device__ __forceinline__ void scale_rows_and_columns(float (&d)[Blocks][Registers],
                                                       const float (&of_rows)[Blocks][2],
                                                       unsigned columns) {
#pragma unroll
  for (int j = 0; j < Registers / 4; ++j) {
    const float2 x = load_shared_pair<float>(columns + (j * 8 + accumulator_column()) * 4);
#pragma unroll
    for (int i = 0; i < Blocks; ++i) {
#pragma unroll
      for (int r = 4 * j; r < 4 * j + 4; ++r) {
        d[i][r] = d[i][r] * of_rows[i][r / 2 % 2] * (r % 2 == 0 ? x.x : x.y);
      }
    }
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

// Makes a gated product from its sums: the first half of the columns are the gates, and the second
// half are the columns that they open. The result is in the first half.
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

// Applies the problem's function to the first `Used` sums of each block; `row` and `column` belong
// to the warp's first element. Elements beyond the last row and column are computed too, and are
// not stored.
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

// Adds `factor` times a staged chunk to the warp's 16 rows of one block. The chunk has 128 bytes of
// each row, from column `first` on, at shared address `rows` in the 128-byte swizzle. Columns
// before `begin` are left as they are. `first` and `begin` are known to the compiler.
template <typename T, int Registers>
__device__ __forceinline__ void add_rows(float (&d)[Registers], unsigned rows, int first, int begin,
                                         float factor) {
  const auto add = [&](int i, float2 x) {
    d[first / 2 + i] = plus(d[first / 2 + i], factor, x.x);
    d[first / 2 + i + 1] = plus(d[first / 2 + i + 1], factor, x.y);
  };
  if constexpr (sizeof(T) == 2) {
    const int lane = threadIdx.x % 32, line = lane % 16, half = lane / 16;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (first + j * 16 + 8 < begin) continue;
      unsigned words[4];  // two for each 8 columns
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
