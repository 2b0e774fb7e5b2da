#pragma once
// Multiplies the stages of a tile into its accumulators. Run by one consumer warpgroup.

#include "layout.cuh"
#include <kernwright/matmul/multiply_stages.cuh>
#include <kernwright/matmul/promotion.cuh>

namespace {

constexpr int kProducts = BK / 16;  // steps of 32 bytes of k in a stage

// The operands of a stage: A from the consumer's first row, and B.
struct Operands {
  WgmmaOperand<Major::k, BM, DEPTH> a;
  WgmmaOperand<kMajorB, BN, DEPTH> b;

  __device__ __forceinline__ Operands(Addresses at, int stage, int first_row)
      : a(at.a(stage), first_row), b(at.b(stage)) {}
};

// Puts the sums over `steps` stages into d. Calls `meanwhile` in every stage while the tensor cores
// work, and `all_landed` once the last stage has landed.
template <typename Meanwhile, typename AllLanded>
__device__ __forceinline__ void multiply_tile(Acc& d, TilePipeline& pipeline, Addresses at,
                                              int first_row, int steps, const Meanwhile& meanwhile,
                                              const AllLanded& all_landed) {
  const auto operands = [&](int stage) { return Operands(at, stage, first_row); };
  multiply_stages<dtype_t, kProducts, false>(d, pipeline, steps, operands, meanwhile, all_landed);
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) convert_sums<dtype_t>(d[i]);
}

// Returns the factors of 64 rows of a stage, from the warp's row `row` on.
template <int Columns>
__device__ __forceinline__ auto factors_of(Addresses at, int stage, int row, int first_column) {
  if constexpr (kScaled) {
    return RowFactors<Columns>(at.scales(stage), row, first_column);
  } else {
    return NoFactors{};
  }
}

// Does the same for PROMOTED sums. `first_column` is the tile's.
template <typename Meanwhile>
__device__ __forceinline__ void multiply_promoted(Acc& d, TilePipeline& pipeline, Addresses at,
                                                  int first_row, int first_column, int steps,
                                                  const Meanwhile& meanwhile) {
  const auto operands = [&](int stage) { return Operands(at, stage, first_row); };
  const int row = first_row + threadIdx.x / 32 % 4 * 16;
  const auto factors = [&](int stage, int block) {
    return factors_of<BN>(at, stage, row + block * 64, first_column);
  };
  if constexpr (AHEAD) {
    multiply_promoted_ahead<dtype_t, kProducts>(d, pipeline, steps, operands, factors);
  } else {
    kernwright::multiply_promoted<dtype_t, kProducts>(d, pipeline, steps, operands, factors,
                                                      meanwhile);
  }
}

}  // namespace
