#pragma once
// Multiplies the stages of a tile into its sums. Run by one consumer, a warpgroup.
//
// The numbers of kSets units are in registers: while the tensor cores multiply some, the codes of
// the next are turned to numbers. The codes of the next box are loaded meanwhile.

#include "layout.cuh"
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/tma.cuh>
#include <kernwright/quantized/staged_factors.cuh>

namespace {

// A unit is the columns of a block that are multiplied together. A stage has a multiple of kSets.
constexpr int kSets = 4;
constexpr int kStageBoxes = kOwn * kBoxes;        // of a consumer, 64 columns of a block each
constexpr int kSteps = kStageBoxes == 1 ? 1 : 2;  // of 16 columns, in a unit
constexpr int kUnitsOfBox = 4 / kSteps;
using Unit = RegisterOperand<kSteps>;

constexpr int kParts = 64 / SCALED;  // of the columns of a box, with scales of their own
// Sums are scaled after each group or stage, or after all columns if they have one group.
constexpr bool kScaledSums = SUMS && !ONE_GROUP;
constexpr int kUnitsOfSum = STAGE_GROUPS == 1 ? kBoxes * kUnitsOfBox : kUnitsOfBox;
static_assert(!SUMS || SCALED == 64);

// The codes of a box of a slab, with the scales and zero points of its parts.
struct Box {
  Packed<16> codes[kVectors];
  StagedFactors factors[kParts];

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
      const StagedFactors& own = factors[(first + i) * 16 / SCALED];
      decode_pairs<dtype_t>(numbers[i], codes_of(codes, first + i), own.zero);
      if constexpr (!SUMS) {
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
  for (int i = 0; i < TOKENS / 2; ++i) sums[i] = fmaf(scale[i / 2 % 2], part[i], sums[i]);
}

// Adds the products of stages `first` to `last` - 1 of k, with the blocks of weights from
// `first_block` of the tile on. `groups` is the number of all groups. Calls all_landed() once the
// last stage has landed.
template <typename AllLanded>
__device__ __forceinline__ void multiply_stages(Acc& acc, StageRing& ring, Addresses at,
                                                int first_block, int first, int last, int groups,
                                                const AllLanded& all_landed) {
  Unit units[kSets];
  float part[TOKENS / 2] = {};  // the sums of a group or stage, with kScaledSums
  float scales[kOwn][2] = {};   // of all columns, with ONE_GROUP
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
        Unit& numbers = units[unit % kSets];
        auto& sums = kScaledSums ? part : acc[own];
        box.convert(numbers, half * kSteps);
        wgmma_pin(sums);
        pin_operand(numbers);
        wgmma_fence();
        multiply<dtype_t>(sums, numbers, a, in_block * kSteps,
                          !kScaledSums || in_block % kUnitsOfSum != 0);
        wgmma_commit();
        if (kScaledSums && in_block % kUnitsOfSum == kUnitsOfSum - 1) {
          wgmma_wait<0>();
          wgmma_pin(part);
          add_scaled(acc[own], part, box.factors[0].scale);
        } else {
          wgmma_wait<kSets - 1>();  // the numbers of the next unit's registers are multiplied
        }
        // By now the last units of the stage before are done.
        if (unit == kSets - 2 && previous >= 0) ring.consumer_release(previous);
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
