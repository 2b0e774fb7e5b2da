#pragma once
// Multiplies the stages of a tile into its sums. Run by one consumer, a warpgroup.
//
// The numbers of kSets units are in registers: while the tensor cores multiply some, the codes of
// the next are turned to numbers. The codes of the next box are loaded meanwhile.

#include "layout.cuh"
#include <kernwright/math/vector.cuh>
#include <kernwright/quantized/staged_factors.cuh>

namespace {

// A unit is the columns of a block that are multiplied together. A stage has a multiple of kSets.
constexpr int kSets = 4;
constexpr int kStageBoxes = kOwn * kBoxes;        // of a consumer, 64 columns of a block each
constexpr int kSteps = kStageBoxes == 1 ? 1 : 2;  // of 16 columns, in a unit
constexpr int kUnitsOfBox = 4 / kSteps;
using Unit = RegisterOperand<kSteps>;

constexpr int kParts = 64 / SCALED;  // of the columns of a box, with scales of their own
// Sums are scaled after SUM_COLUMNS columns, or after all if they have one group.
constexpr bool kScaledSums = SUMS && !ONE_GROUP;
constexpr int kUnitsOfSum = SUM_COLUMNS / 64 * kUnitsOfBox;
static_assert(!SUMS || SCALED == 64);
// The sums of two groups of a stage take turns, if they are long: those of one are scaled when
// most units of the next are under way.
constexpr bool kSumsOverlap = kUnitsOfSum >= kSets;
constexpr int kLastSum = kStageBoxes * kUnitsOfBox / kUnitsOfSum - 1;  // of a stage

// The codes of a box of a slab, with the scales and zero points of its parts.
struct Box {
  Packed<16> codes[kVectors];
  StagedFactors<SUMS> factors[kParts];

  Box() = default;
  // `block` is its block of the tile, and `column` its first column of the stage `step`, which is
  // in the ring at `stage`.
  __device__ __forceinline__ Box(Addresses at, int stage, int block, int step, int column,
                                 int groups) {
    const int slab = static_cast<int>(threadIdx.x) % 128 / 32;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      codes[v] = load_shared<16>(at.codes(stage, block) + column / 64 * kBlockBytes +
                                 (slab * kVectors + v) * 512 + threadIdx.x % 32 * 16);
    }
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const int place = STAGE_GROUPS == 1 ? 0
                                          : group_of(step * BK + column + i * SCALED, groups) -
                                                group_of(step * BK, groups);
      factors[i] = {at.scales(stage, block), at.zeros(stage, block), place, slab};
    }
  }

  // Turns the codes of a unit, from step `first` on, to numbers.
  __device__ __forceinline__ void convert(Unit& numbers, int first) const {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const StagedFactors<SUMS>& own = factors[(first + i) * 16 / SCALED];
      const auto own_codes = codes_of(codes, first + i);
      if constexpr (SUMS) {
        decode_small_pairs<dtype_t>(numbers[i], own_codes, own.zero);
      } else {
        decode_pairs<dtype_t>(numbers[i], own_codes, own.zero);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          numbers[i][j] = scale_pair<dtype_t>(numbers[i][j], own.scale[j % 2]);
        }
      }
    }
  }
};

// Multiplies the sums of rows g and g + 8 by their scales, and adds them to `sums`.
__device__ __forceinline__ void add_scaled(float (&sums)[TOKENS / 2],
                                           const float (&part)[TOKENS / 2],
                                           const float (&scale)[2]) {
#pragma unroll
  for (int i = 0; i < TOKENS / 2; ++i) {
    sums[i] = fmaf(scale[i / 2 % 2], separated(part, i), sums[i]);
  }
}

// Adds the products of stages `first` to `last` - 1 of k, with the blocks of weights from
// `first_block` of the tile on. `groups` is the number of all groups. Calls all_landed() once the
// last stage has landed.
template <typename AllLanded>
__device__ __forceinline__ void multiply_stages(Acc& acc, StageRing& ring, Addresses at,
                                                int first_block, int first, int last, int groups,
                                                const AllLanded& all_landed) {
  Unit units[kSets];
  float parts[2][TOKENS / 2] = {};  // the sums of groups or stages, with kScaledSums
  float scales[kOwn][2] = {};       // of all columns, with ONE_GROUP
  float part_scale[2] = {};
  int previous = -1;
#pragma unroll 1
  for (int step = first; step < last; ++step) {
    ring.consumer_wait();
    const int stage = ring.stage();
    const OperandA a(at.a(stage));
    const auto box_at = [&](int i) {
      return Box(at, stage, first_block + i / kBoxes, step, i % kBoxes * 64, groups);
    };
    Box boxes[2] = {box_at(0)};
#pragma unroll
    for (int i = 0; i < kStageBoxes; ++i) {
      if (i + 1 < kStageBoxes) boxes[(i + 1) % 2] = box_at(i + 1);
      const Box& box = boxes[i % 2];
      const int own = i / kBoxes;
      scales[own][0] = box.factors[0].scale[0];
      scales[own][1] = box.factors[0].scale[1];
#pragma unroll
      for (int half = 0; half < kUnitsOfBox; ++half) {
        const int in_block = i % kBoxes * kUnitsOfBox + half, unit = i * kUnitsOfBox + half;
        const int in_sum = in_block % kUnitsOfSum, number = unit / kUnitsOfSum;
        Unit& numbers = units[unit % kSets];
        auto& sums = kScaledSums ? parts[number % 2] : acc[own];
        box.convert(numbers, half * kSteps);
        wgmma_pin(sums);
        pin_operand(numbers);
        wgmma_fence();
        multiply<dtype_t>(sums, numbers, a, in_block * kSteps, !kScaledSums || in_sum != 0);
        wgmma_commit();
        const bool is_summed = kScaledSums && in_sum == kUnitsOfSum - 1;
        const bool drains = is_summed && (!kSumsOverlap || number == kLastSum);
        if (drains) {
          wgmma_wait<0>();
        } else {
          wgmma_wait<kSets - 1>();  // the numbers of the next unit's registers are multiplied
        }
        if (kScaledSums && kSumsOverlap && number > 0 && in_sum == kSets - 2) {
          auto& before = parts[(number - 1) % 2];
          wgmma_pin(before);
          add_scaled(acc[(number - 1) * kUnitsOfSum / (kBoxes * kUnitsOfBox)], before, part_scale);
        }
        if (is_summed) {
          part_scale[0] = box.factors[0].scale[0];
          part_scale[1] = box.factors[0].scale[1];
        }
        if (drains) {
          wgmma_pin(sums);
          add_scaled(acc[own], sums, part_scale);
        }
        // By now the last units of the stage before are done.
        if (unit == kSets - 2 && previous >= 0) ring.consumer_release(previous);
      }
    }
    __syncwarp();  // all lanes have read the codes
    previous = stage;
    ring.advance();
  }
  all_landed();
  wgmma_wait<0>();
#pragma unroll
  for (int own = 0; own < kOwn; ++own) {
    wgmma_pin(acc[own]);
    if constexpr (SUMS) {
      constexpr float kFactors[2] = {sum_factor<dtype_t>(0), sum_factor<dtype_t>(1)};
#pragma unroll
      for (int i = TOKENS / 2 - 1; i >= 0;
           --i) {  // the upper ones first, which take the lower ones
        const float sum = ONE_GROUP ? scales[own][i / 2 % 2] * separated(acc[own], i) : acc[own][i];
        acc[own][i] = kFactors[i / 2 % 2] * sum;
      }
    }
  }
  if (previous >= 0) ring.consumer_release(previous);
}

}  // namespace
