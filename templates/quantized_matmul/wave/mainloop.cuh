#pragma once
// Multiplies the stages of a tile into its sums. Run by one consumer, a warpgroup.
//
// The numbers of two units take turns in registers: while the tensor cores multiply one unit, the
// codes of the next are turned to numbers.

#include "layout.cuh"
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/tma.cuh>
#include <kernwright/quantized/staged_factors.cuh>

namespace {

// A unit is the columns of a block that are multiplied together. A stage has an even number.
constexpr int kSteps = kBoxes * kOwn % 2 == 0 ? 4 : 2;  // of 16 columns
constexpr int kUnitsOfBox = 4 / kSteps;
constexpr int kUnitsOfBlock = kBoxes * kUnitsOfBox;
using Unit = RegisterOperand<kSteps>;

constexpr int kParts = 64 / SCALED;  // of the columns of a box, with scales of their own
// Sums are scaled after each group or stage, or after all columns if they have one group.
constexpr bool kScaledSums = SUMS && !ONE_GROUP;
constexpr int kUnitsOfSum = STAGE_GROUPS == 1 ? kUnitsOfBlock : kUnitsOfBox;
static_assert(!SUMS || SCALED == 64);

// The codes of a box of a slab.
struct BoxCodes {
  Packed<16> vectors[kVectors];

  __device__ __forceinline__ explicit BoxCodes(unsigned codes) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const unsigned in_block = threadIdx.x % 128 / 32 * kVectors + v;
      vectors[v] = load_shared<16>(codes + in_block * 512 + threadIdx.x % 32 * 16);
    }
  }
};

// Turns the codes of a unit, from step `first` of a box on, to numbers.
__device__ __forceinline__ void convert(Unit& numbers, const BoxCodes& codes,
                                        const StagedFactors (&factors)[kParts], int first) {
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const StagedFactors& own = factors[(first + i) * 16 / SCALED];
    decode_pairs<dtype_t>(numbers[i], codes_of(codes.vectors, first + i), own.zero);
    if constexpr (!SUMS) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        numbers[i][j] = scale_pair<dtype_t>(numbers[i][j], own.scale[j % 2]);
      }
    }
  }
}

// Multiplies the sums of rows g and g + 8 by their scales, and adds them to `sums`.
__device__ __forceinline__ void add_scaled(float (&sums)[TOKENS / 2],
                                           const float (&part)[TOKENS / 2],
                                           const float (&scale)[2]) {
#pragma unroll
  for (int i = 0; i < TOKENS / 2; ++i) sums[i] = fmaf(scale[i / 2 % 2], part[i], sums[i]);
}

// Adds the products of stages `first` to `last` - 1 of k, with the blocks of weights from
// `first_block` of the tile on. `groups` is the number of all groups. Calls all_landed() once the
// last stage has landed.
template <typename AllLanded>
__device__ __forceinline__ void multiply_stages(Acc& acc, StageRing& ring, Addresses at,
                                                int first_block, int first, int last, int groups,
                                                const AllLanded& all_landed) {
  Unit units[2];
  StagedFactors factors[kParts];
  float part[TOKENS / 2] = {};  // the sums of a group or stage, with kScaledSums
  float scales[kOwn][2] = {};   // of all columns, with ONE_GROUP
  int previous = -1;
#pragma unroll 1
  for (int step = first; step < last; ++step) {
    ring.consumer_wait();
    const int stage = ring.stage();
    const OperandA a(at.a(stage));
    const int first_group = group_of(step * BK, groups);
#pragma unroll
    for (int own = 0; own < kOwn; ++own) {
      const int block = first_block + own;
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {
#pragma unroll
        for (int i = 0; i < kParts; ++i) {
          const int column = step * BK + box * 64 + i * SCALED;
          const int place = STAGE_GROUPS == 1 ? 0 : group_of(column, groups) - first_group;
          factors[i] = {at.scales(stage, block), at.zeros(stage, block), place,
                        static_cast<int>(threadIdx.x) % 128 / 32};
        }
        scales[own][0] = factors[0].scale[0];
        scales[own][1] = factors[0].scale[1];
        const BoxCodes codes(at.codes(stage, block) + box * kBlockBytes);
#pragma unroll
        for (int half = 0; half < kUnitsOfBox; ++half) {
          const int unit = box * kUnitsOfBox + half;
          Unit& numbers = units[(own * kUnitsOfBlock + unit) % 2];
          auto& sums = kScaledSums ? part : acc[own];
          convert(numbers, codes, factors, half * kSteps);
          wgmma_pin(sums);
          pin_operand(numbers);
          wgmma_fence();
          multiply<dtype_t>(sums, numbers, a, unit * kSteps,
                            !kScaledSums || unit % kUnitsOfSum != 0);
          wgmma_commit();
          if (kScaledSums && unit % kUnitsOfSum == kUnitsOfSum - 1) {
            wgmma_wait<0>();
            wgmma_pin(part);
            add_scaled(acc[own], part, factors[0].scale);
          } else {
            wgmma_wait<1>();  // the unit before, whose registers are free now
          }
          if (own == 0 && unit == 0 && previous >= 0) ring.consumer_release(previous);
        }
      }
    }
    tma_store_fence();
    __syncwarp();  // all lanes have read the codes
    previous = stage;
    ring.advance();
  }
  all_landed();
  wgmma_wait<0>();
#pragma unroll
  for (int own = 0; own < kOwn; ++own) {
    wgmma_pin(acc[own]);
    if constexpr (SUMS && ONE_GROUP) {
#pragma unroll
      for (int i = 0; i < TOKENS / 2; ++i) acc[own][i] *= scales[own][i / 2 % 2];
    }
  }
  if (previous >= 0) ring.consumer_release(previous);
}

}  // namespace
