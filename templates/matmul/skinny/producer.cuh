#pragma once
// Fills the ring: one thread loads both operands by TMA, and one warp copies scales.

#include "layout.cuh"
#include "result.cuh"
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/mbarrier.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/ptx/tma.cuh>

namespace {

// Prefetches the first stages of b into the L2 while the previous kernel may still run; that kernel
// seldom writes b. Run by all consumer threads, which have nothing else to do.
__device__ __forceinline__ void prefetch_stages(const dtype_t* b, int k, int ldb, int row_b,
                                                int rows_b, int first, int last) {
  if constexpr (kMajorB == Major::k) {
    if (ldb * sizeof(dtype_t) % 16 != 0) return;  // a copy is read instead
    b += first_of_batch<long long>(STACK * rows_b) * ldb;
    constexpr int kLine = 128 / sizeof(dtype_t);
    constexpr int kLines = DEPTH / kLine;
    const int lines = min(last - first, STAGES) * kLines;
#pragma unroll 1
    for (int i = threadIdx.x; i < kRowsB * lines; i += CONSUMER_THREADS) {
      const int place = i / lines, half = place / BN, row = row_b + place % BN;
      const int column = first * DEPTH + i % lines * kLine;
      if (row < rows_b && column < k) {
        prefetch_line(b + (static_cast<long long>(half) * rows_b + row) * ldb + column);
      }
    }
  }
}

// Loads both operands. Run by the producer, one thread.
__device__ __forceinline__ void produce(const TensorMap& map_a, const TensorMap& map_b,
                                        TilePipeline& pipeline, Addresses at, const Tile& tile,
                                        Shape shape, int first, int last, bool b_once, bool reads) {
  constexpr unsigned kAll = (1u << CM) - 1;                           // ranks of the cluster
  constexpr int kPartB = kMajorB == Major::k ? BN / CM : DEPTH / CM;  // rows, or of k
  const int part_b = CM == 1 ? 0 : blockIdx.y % CM * kPartB;
  int row_a = tile.row_a, row_b = tile.row_b;
  row_a += first_of_batch<int>(shape.m);
  if constexpr (kMajorB == Major::k) row_b += first_of_batch<int>(STACK * shape.n) + part_b;
  const int first_k = kMajorB == Major::k ? 0 : first_of_batch<int>(shape.k) + part_b;
  release_next_kernel();
  await_previous_kernel();
#pragma unroll 1
  for (int step = first; step < last; ++step) {
    pipeline.producer_acquire(STAGE_BYTES);
    const int stage = pipeline.stage();
    const unsigned full = pipeline.full();
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      const int x = reads ? step * DEPTH + box * kBoxK : kNowhere;
      if constexpr (kMajorB == Major::k) {
#pragma unroll
        for (int half = 0; half < STACK; ++half) {
          tma_load_for<CM>(at.b(stage) + (box * kRowsB + half * BN + part_b) * kRowBytes, map_b, x,
                           row_b + half * shape.n, full, kAll, b_once);
        }
      }
      tma_load(at.a(stage) + box * BM * kRowBytes, map_a, x, row_a, full);
    }
    if constexpr (kMajorB == Major::mn) {
#pragma unroll
      for (int block = 0; block < kRowsB / 64; ++block) {
        const int half = block * 64 / BN;
        tma_load_for<CM>(at.b(stage) + block * kBlockBytesB + part_b * kRowBytes, map_b,
                         row_b + block * 64 + half * (shape.n - BN),
                         reads ? first_k + step * DEPTH : kNowhere, full, kAll, b_once);
      }
    }
    pipeline.advance();
  }
  if constexpr (CM > 1) pipeline.producer_drain();
}

// Copies the scales of each stage. Run with scales of blocks, by one warp.
__device__ __forceinline__ void produce_scales(const ScaleTensors& scales, TilePipeline& pipeline,
                                               Addresses at, const Tile& tile, int first,
                                               int last) {
  const ScaleTensors from = scales_of(scales, batch == 1 ? 0 : blockIdx.z);
  await_previous_kernel();
#pragma unroll 1
  for (int step = first; step < last; ++step) {
    pipeline.producer_wait();
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      at.scales(pipeline.stage(), box).load(from, tile.row_a, tile.row_b, step * kBoxes + box);
    }
    arrive_with_scales(pipeline.full());
    pipeline.advance();
  }
}

}  // namespace
