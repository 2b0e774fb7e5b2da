#pragma once
// Multiplies the stages of a tile into its accumulators. Run by one consumer warpgroup.

#include "layout.cuh"
#include <kernwright/matmul/block_scales.cuh>
#include <kernwright/tile/frame.cuh>

namespace {

// Issues `count` steps of 32 bytes of k of a stage, from step `first` on. They are added to d or,
// unless `add`, replace it.
__device__ __forceinline__ void start_products(Acc& d, const OperandB& b, const OperandA& a,
                                               int first, int count, bool add) {
#pragma unroll
  for (int half = 0; half < STACK; ++half) wgmma_pin(d[half]);
  wgmma_fence();
  multiply<dtype_t>(d, b, BN, a, first, count, add);
  wgmma_commit();
}

__device__ __forceinline__ void finish_products(Acc& d) {
  wgmma_wait<0>();
#pragma unroll
  for (int half = 0; half < STACK; ++half) wgmma_pin(d[half]);
}

// Multiplies the consumer's 64 rows of b, of either half. Run by a consumer, one warpgroup. With
// AHEAD a stage's products still run while the next stage's are issued; the stage is released after
// that.
__device__ __forceinline__ void consume(Acc& acc, TilePipeline& pipeline, Addresses at, int first,
                                        int last) {
  const int consumer = warpgroup_number();
  int previous = 0;
  if constexpr (PROMOTED) {
    clear(acc);
  }
#pragma unroll 1
  for (int step = first; step < last; ++step) {
    pipeline.consumer_wait();
    const OperandB b(at.b(pipeline.stage()), consumer * 64);
    const OperandA a(at.a(pipeline.stage()));
    if constexpr (PROMOTED) {
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {  // 128 of k each
        Acc part;
        start_products(part, b, a, box * kStepsOfBox, kStepsOfBox, false);
        finish_products(part);
        if constexpr (kScaled) {
          ColumnFactors<BM>(at.scales(pipeline.stage(), box)).add(acc[0], part[0]);
        } else {
#pragma unroll
          for (int half = 0; half < STACK; ++half) {
#pragma unroll
            for (int i = 0; i < BM / 2; ++i) acc[half][i] += part[half][i];
          }
        }
      }
      if constexpr (kScaled) __syncwarp();  // all lanes have read the scales
      pipeline.consumer_release(pipeline.stage());
    } else {
      start_products(acc, b, a, 0, kProducts, step != first);
      if constexpr (AHEAD) {
        wgmma_wait<1>();
        if (step != first) pipeline.consumer_release(previous);
        previous = pipeline.stage();
      } else {
        finish_products(acc);
        pipeline.consumer_release(pipeline.stage());
      }
    }
    pipeline.advance();
  }
  if constexpr (AHEAD) {
    finish_products(acc);
    pipeline.consumer_release(previous);
  }
#pragma unroll
  for (int half = 0; half < STACK; ++half) convert_sums<dtype_t>(acc[half]);
}

}  // namespace
