#pragma once
// Turns the sums of a tile into the result. They go through shared memory, transposed, a few rows
// of a at a time, so that a store writes neighbours in a row of d.

#include "layout.cuh"
#include <kernwright/math/vector.cuh>
#include <kernwright/matmul/epilogue.cuh>
#include <kernwright/matmul/split.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/ptx/warp_roles.cuh>

namespace {

// The result, m x n, and what is added to it.
struct Result {
  Epilogue epilogue;
  Output<int> output;
  int m;
};

// Loads ALIGN_D neighbours at a shared address.
__device__ __forceinline__ void load_neighbours(float (&x)[ALIGN_D], unsigned from) {
  if constexpr (ALIGN_D >= 4) {
#pragma unroll
    for (int i = 0; i < ALIGN_D; i += 4) {
      const float4 quad = load_quad(from + i * 4);
      x[i] = quad.x, x[i + 1] = quad.y, x[i + 2] = quad.z, x[i + 3] = quad.w;
    }
  } else if constexpr (ALIGN_D == 2) {
    const float2 pair = load_shared_pair<float>(from);
    x[0] = pair.x, x[1] = pair.y;
  } else {
    x[0] = load_shared<float>(from);
  }
}

// Finishes and stores the sums of 64 rows of weights. `row` is the first row of a, and `column` the
// first column of d. Chunks go through two slots in turn, so one barrier for each is enough.
template <int Registers>
__device__ __forceinline__ void store_block(const float (&sums)[Registers], const Result& result,
                                            Addresses at, int consumer, int row, int column,
                                            int& slot) {
  constexpr int kColumns = 64 / STACK;
  constexpr int kStores = kColumns / ALIGN_D;  // of a row
  const int thread = threadIdx.x % 128, warp = thread / 32, lane_id = thread % 32;
#pragma unroll
  for (int first = 0; first < 2 * Registers; first += kChunk) {
    if (row + first >= result.m) break;
    const unsigned staged = at.staging(consumer, slot);
    slot ^= 1;
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i) {
      // With a gate, rows g are gates and rows g + 8 what they open; these are behind all gates.
      const int in_warp = lane_id / 4, upper = i / 2 % 2;
      const int place =
          STACK == 1 ? warp * 16 + upper * 8 + in_warp : upper * kColumns + warp * 8 + in_warp;
      const int row_a = i / 4 * 8 + lane_id % 4 * 2 + i % 2;
      store_number(staged + (row_a * kStagedPitch + place) * 4,
                   __float_as_int(sums[first / 2 + i]));
    }
    named_barrier_sync(1 + consumer, 128);
#pragma unroll 4
    for (int piece = thread; piece < kChunk * kStores; piece += 128) {
      const int in_chunk = piece / kStores, in_block = piece % kStores * ALIGN_D;
      const int row_d = row + first + in_chunk, column_d = column + in_block;
      if (row_d >= result.m || column_d >= result.output.n) continue;
      const unsigned from = staged + (in_chunk * kStagedPitch + in_block) * 4;
      float x[ALIGN_D];
      load_neighbours(x, from);
      if constexpr (kGated) {
        float other[ALIGN_D];
        load_neighbours(other, from + kColumns * 4);
#pragma unroll
        for (int i = 0; i < ALIGN_D; ++i) {
          x[i] = result.epilogue.gated(x[i], other[i], row_d, column_d + i);
        }
      } else {
        result.epilogue.apply(x, row_d, column_d);
      }
      store<Store::plain>(result.output.at(row_d, column_d),
                          pack<out_t, ALIGN_D * sizeof(out_t)>(x));
    }
  }
}

// Does so with all sums of a consumer. `row` and `column` are their first ones.
template <int Registers>
__device__ __forceinline__ void store_tile(const float (&sums)[kOwn][Registers],
                                           const Result& result, Addresses at, int consumer,
                                           int row, int column, int& slot) {
#pragma unroll
  for (int own = 0; own < kOwn; ++own) {
    store_block(sums[own], result, at, consumer, row, column + own * (64 / STACK), slot);
  }
}

}  // namespace
