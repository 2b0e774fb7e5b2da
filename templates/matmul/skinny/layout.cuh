#pragma once
// The boxes and stages of the operands, the units of a tile's sums, and the places of all of it in
// shared memory. `a` is the operand with few rows, and `b` the other.

#include <kernwright/config.cuh>
#include <kernwright/matmul/block_scales.cuh>
#include <kernwright/tile/pipeline.cuh>
#include <kernwright/tile/swizzle.cuh>
#include <kernwright/tile/wgmma_tile.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

constexpr int kRowBytes = kSwizzleBytes;  // of a TMA box
constexpr int kBoxK = kRowBytes / sizeof(dtype_t);
constexpr int kBoxes = DEPTH / kBoxK;  // boxes along k of a stage
constexpr int kProducts = BK / 16;     // steps of 32 bytes of k in a stage
// b as [k, n] is loaded in boxes of 64 columns and the whole depth of a stage.
constexpr Major kMajorB = b_layout == b_layout_kn ? Major::mn : Major::k;
constexpr int kBlockBytesB = DEPTH * kRowBytes;        // of such a box
constexpr int kRowsB = BN * STACK;                     // of a stage
constexpr int kFragments = BM / 8;                     // units per consumer thread
constexpr int kUnits = kFragments * CONSUMER_THREADS;  // of a tile: 2 x 2 elements each
constexpr int kOwned = kUnits / SPLIT;                 // of these, summed by one block
constexpr bool kScaled = scaling == scaling_block;
constexpr int kParts = SPLIT * SLICES;  // of k
constexpr int kFinishThreads = 128;     // each adds up a unit
static_assert(kUnits % SPLIT == 0 && kOwned * SPLIT * 16 == BM * BN * 4);
static_assert(kUnits % kFinishThreads == 0);
static_assert(BN % 64 == 0 && DEPTH % kBoxK == 0 && BM % 8 == 0);
static_assert(kMajorB == Major::k || !TRANSPOSED);
static_assert(CM == 1 || SPLIT == 1, "the ranks of a cluster are tiles or slices of k");
// Tiles of many rows are staged in the ring before they are stored. A consumer uses the rows of b
// that it alone reads; its 64 columns of d are 128 bytes of each row.
constexpr int kRowsOfBox = 64;
constexpr bool kStaged = BM >= 64 && kParts == 1 && !TRANSPOSED && sizeof(out_t) == 2 &&
                         STAGES * kBoxes * kRowsOfBox >= BM;

using TilePipeline = Pipeline<STAGES, CM>;
using OperandA = WgmmaOperand<Major::k, BM, DEPTH>;
using OperandB = WgmmaOperand<kMajorB, kRowsB, DEPTH>;

// The accumulators of a consumer thread, and the sums of a unit.
using Acc = float[STACK][BM / 2];
struct Unit {
  float4 sums[STACK];
};

// The rows of a, and of b or of its gates alone, and their columns.
struct Shape {
  int m, n, k;
};

// 32-bit addresses in shared memory. `base` is a multiple of 1024, which the swizzle needs.
struct Addresses {
  static constexpr unsigned kA = STAGES * kRowsB * BK * 2;
  static constexpr unsigned kPartial = SUMS_IN_RING ? 0 : STAGES * STAGE_BYTES;
  static constexpr unsigned kBarriers = STAGES * STAGE_BYTES + (SUMS_IN_RING ? 0 : PARTIAL_BYTES);
  static constexpr unsigned kReceived = kBarriers + TilePipeline::kBytes;
  static constexpr unsigned kScales = kReceived + 16;
  static_assert(kScales + STAGES * SCALE_BYTES + 1024 == SMEM_BYTES);
  static_assert(!SUMS_IN_RING || PARTIAL_BYTES <= STAGES * STAGE_BYTES);

  unsigned base;
  __device__ unsigned b(int stage) const { return base + stage * (kRowsB * BK * 2); }
  __device__ unsigned a(int stage) const { return base + kA + stage * (BM * BK * 2); }
  // Returns the address of sums of this block's part of the tile, rows of kOwned for each rank.
  __device__ unsigned partial(int rank, int half, int unit) const {
    return base + kPartial + ((rank * STACK + half) * kOwned + unit) * 16;
  }
  __device__ unsigned barriers() const { return base + kBarriers; }
  // Returns the scales of 128 of k, number `box` of a stage.
  __device__ StageScales<BM> scales(int stage, int box) const {
    return {base + kScales + stage * SCALE_BYTES + box * StageScales<BM>::kBytes};
  }
  __device__ unsigned received() const {
    return base + kReceived;
  }  // barrier: all partial sums have arrived
};

// Returns the first row of this block's product in a tensor with `rows` rows for each product.
template <typename Index>
__device__ __forceinline__ Index first_of_batch(int rows) {
  return batch == 1 ? 0 : static_cast<Index>(blockIdx.z) * rows;
}

}  // namespace
