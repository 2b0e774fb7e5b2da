#pragma once
// From the stages of a tile to its sums. Run by one consumer warpgroup.

#include "layout.cuh"

namespace {

constexpr int kProducts = BK / 16;  // steps of 32 bytes of k in a stage

// The operands of a stage: A from the consumer's first row, and B.
struct Operands {
  WgmmaOperand<Major::k, BM, DEPTH> a;
  WgmmaOperand<kMajorB, BN, DEPTH> b;

  __device__ __forceinline__ Operands(Addresses at, int stage, int first_row)
      : a(at.a(stage), first_row), b(at.b(stage)) {}
};

// Waits for the next stage.
__device__ __forceinline__ Operands await_operands(const TilePipeline& pipeline, Addresses at,
                                                   int first_row) {
  pipeline.consumer_wait();
  return Operands(at, pipeline.stage(), first_row);
}

// Puts the sums over `steps` stages into d. Calls `meanwhile` in every stage while the tensor cores
// work, and `all_landed` once the last stage has landed. A stage is released after the next one's
// products have been issued, so that the tensor cores always have work.
template <typename Meanwhile, typename AllLanded>
__device__ __forceinline__ void multiply_tile(Sums& d, TilePipeline& pipeline, Addresses at,
                                              int first_row, int steps, const Meanwhile& meanwhile,
                                              const AllLanded& all_landed) {
  int previous = -1;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const Operands operands = await_operands(pipeline, at, first_row);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) wgmma_pin(d[i]);
    wgmma_fence();
    multiply<dtype_t>(d, operands.a, 64, operands.b, 0, kProducts, step != 0);
    wgmma_commit();
    meanwhile();
    wgmma_wait<1>();
    if (previous >= 0) pipeline.consumer_release(previous);
    previous = pipeline.stage();
    pipeline.advance();
  }
  all_landed();
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) wgmma_pin(d[i]);
  pipeline.consumer_release(previous);
}

// The same for PROMOTED sums: the tensor cores sum one stage, which is then added to d in fp32.
template <typename Meanwhile>
__device__ __forceinline__ void multiply_promoted(Sums& d, TilePipeline& pipeline, Addresses at,
                                                  int first_row, int steps,
                                                  const Meanwhile& meanwhile) {
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
    for (float& x : d[i]) x = 0;
  }
  int step = 0;
#pragma unroll 1
  do {  // a loop that may run no step costs registers: LATE would spill
    const Operands operands = await_operands(pipeline, at, first_row);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      float part[1][BN / 2];
      wgmma_pin(part[0]);
      wgmma_fence();
      multiply<dtype_t>(part, operands.a.from(i * 64), 0, operands.b, 0, kProducts, false);
      wgmma_commit();
      if (i == 0) meanwhile();
      wgmma_wait<0>();
      wgmma_pin(part[0]);
      if (i == kBlocks - 1) pipeline.consumer_release(pipeline.stage());
#pragma unroll
      for (int j = 0; j < BN / 2; ++j) d[i][j] += part[0][j];
    }
    pipeline.advance();
  } while (++step < steps);
}

}  // namespace
