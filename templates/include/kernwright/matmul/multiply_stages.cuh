#pragma once
// Multiplies the stages of a ring into the sums of a tile, in the tensor cores. promotion.cuh has
// the sums that are added in fp32.

#include <kernwright/ptx/wgmma.cuh>
#include <kernwright/tile/wgmma_tile.cuh>

namespace kernwright {

// Adds to d the products of `steps` stages, in `Blocks` blocks of 64 rows, or begins with them
// unless `Add`. Run by a warpgroup. It waits for each stage of `pipeline`, and releases it after
// the next one's products have been issued, so that the tensor cores always have work.
//
//   operands(stage)   `a`, from the warpgroup's first row, and `b`, WgmmaOperands of `Steps` steps
//   meanwhile()       called in each stage while the tensor cores work
//   all_landed()      called once the last stage has landed
template <typename T, int Steps, bool Add, int Blocks, int Registers, typename Ring,
          typename OperandsOf, typename Meanwhile, typename AllLanded>
__device__ __forceinline__ void multiply_stages(float (&d)[Blocks][Registers], Ring& pipeline,
                                                int steps, const OperandsOf& operands,
                                                const Meanwhile& meanwhile,
                                                const AllLanded& all_landed) {
  int previous = -1;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    pipeline.consumer_wait();
    const auto [a, b] = operands(pipeline.stage());
#pragma unroll
    for (int i = 0; i < Blocks; ++i) wgmma_pin(d[i]);
    wgmma_fence();
    multiply<T>(d, a, 64, b, 0, Steps, Add || step != 0);
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
  for (int i = 0; i < Blocks; ++i) wgmma_pin(d[i]);
  pipeline.consumer_release(previous);
}

}  // namespace kernwright
