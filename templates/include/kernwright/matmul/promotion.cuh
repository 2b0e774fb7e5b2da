#pragma once
// Sums of fp8 products in fp32. The tensor cores keep about 14 bits of a sum of such products. So
// they sum 128 products of k at a time, a part, and CUDA cores add it to the sums of the tile. A
// part may be multiplied by factors on the way (block_scales.cuh).

#include <kernwright/ptx/wgmma.cuh>
#include <kernwright/tile/wgmma_tile.cuh>

namespace kernwright {

// The factors of products that have no scales.
struct NoFactors {
  template <int Registers>
  __device__ __forceinline__ void add(float (&acc)[Registers],
                                      const float (&part)[Registers]) const {
#pragma unroll
    for (int i = 0; i < Registers; ++i) acc[i] += part[i];
  }
};

// Issues the products of one part, without waiting for them. `a` is the operand from the part's
// first row.
template <typename T, int Registers, typename A, typename B>
__device__ __forceinline__ void start_part(float (&part)[1][Registers], const A& a, const B& b,
                                           int first, int count) {
  wgmma_pin(part[0]);
  wgmma_fence();
  multiply<T>(part, a, 0, b, first, count, false);
  wgmma_commit();
}

// Puts into d the sums over `steps` stages, of 128 of k each, in `Blocks` blocks of 64 rows. Run by
// a warpgroup; others multiply while it adds. It waits for each stage of `pipeline` and releases
// it.
//
//   operands(stage)         `a`, from the warpgroup's first row, and `b`, WgmmaOperands
//   factors(stage, block)   NoFactors, or the factors of a block of 64 rows
//   meanwhile()             called in each stage while the tensor cores work
template <typename T, int Steps, int Blocks, int Registers, typename Ring, typename OperandsOf,
          typename FactorsOf, typename Meanwhile>
__device__ __forceinline__ void multiply_promoted(float (&d)[Blocks][Registers], Ring& pipeline,
                                                  int steps, const OperandsOf& operands,
                                                  const FactorsOf& factors,
                                                  const Meanwhile& meanwhile) {
  clear(d);
  int step = 0;
#pragma unroll 1
  do {  // a loop that may run no step costs registers
    pipeline.consumer_wait();
    const int stage = pipeline.stage();
    const auto [a, b] = operands(stage);
#pragma unroll
    for (int i = 0; i < Blocks; ++i) {
      float part[1][Registers];
      start_part<T>(part, a.from(i * 64), b, 0, Steps);
      if (i == 0) meanwhile();
      const auto of_block = factors(stage, i);
      wgmma_wait<0>();
      wgmma_pin(part[0]);
      if (i == Blocks - 1) pipeline.consumer_release(stage);
      of_block.add(d[i], part[0]);
    }
    pipeline.advance();
  } while (++step < steps);
}

// Does the same for one block, and adds a part while the tensor cores multiply the next one. This
// takes registers for two parts, and no other warpgroup is needed to keep the tensor cores busy.
template <typename T, int Steps, int Registers, typename Ring, typename OperandsOf,
          typename FactorsOf>
__device__ __forceinline__ void multiply_promoted_ahead(float (&d)[1][Registers], Ring& pipeline,
                                                        int steps, const OperandsOf& operands,
                                                        const FactorsOf& factors) {
  clear(d[0]);
  float even[1][Registers], odd[1][Registers];
  const auto start = [&](float(&part)[1][Registers]) {
    pipeline.consumer_wait();
    const auto [a, b] = operands(pipeline.stage());
    start_part<T>(part, a, b, 0, Steps);
  };
  // Adds the part of the present stage while the next one is multiplied.
  const auto promote = [&](float(&part)[1][Registers], float(&next)[1][Registers]) {
    const int stage = pipeline.stage();
    const auto of_part = factors(stage, 0);
    pipeline.advance();
    start(next);
    wgmma_wait<1>();
    wgmma_pin(part[0]);
    pipeline.consumer_release(stage);
    of_part.add(d[0], part[0]);
  };
  const auto promote_last = [&](float(&part)[1][Registers]) {
    const auto of_part = factors(pipeline.stage(), 0);
    wgmma_wait<0>();
    wgmma_pin(part[0]);
    pipeline.consumer_release(pipeline.stage());
    of_part.add(d[0], part[0]);
    pipeline.advance();
  };
  start(even);
  int left = steps;
#pragma unroll 1
  for (; left > 2; left -= 2) {
    promote(even, odd);
    promote(odd, even);
  }
  if (left == 2) {
    promote(even, odd);
    promote_last(odd);
  } else {
    promote_last(even);
  }
}

}  // namespace kernwright
