#pragma once
// The layout of a tile under the configuration: boxes of q, k and v, stages, and their places in
// shared memory.

#include <kernwright/attention/boxes.cuh>
#include <kernwright/attention/query_tile.cuh>
#include <kernwright/config.cuh>
#include <kernwright/tile/frame.cuh>
#include <kernwright/tile/pipeline.cuh>
#include <kernwright/tile/wgmma_tile.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

// Rows of a box have 128 elements; elements behind a head are zero.
constexpr int kSteps = (head_dim + kStepBytes - 1) / kStepBytes;
// Rows of transposed values have the keys of a tile, in boxes of 128.
constexpr int kTransposedBoxes = (BN + kSwizzleBytes - 1) / kSwizzleBytes;

constexpr int kQueryBytes = kBoxesD * BM * kSwizzleBytes;
constexpr int kKeyBytes = kBoxesD * BN * kSwizzleBytes;
constexpr int kValueBytes = kBoxesDv * BN * kSwizzleBytes;
constexpr int kTransposedBytes = kTransposedBoxes * kColumns * kSwizzleBytes;

using Tile = QueryTile<1>;
static_assert(BM == 64 * WGS && BN % kStepBytes == 0);
constexpr RegisterSplit kRegisters = register_split(WGS, 1, false, false);

using TilePipeline = Pipeline<STAGES>;
using QueryPipeline = Pipeline<QSTAGES>;
using NumberQueue = TileQueue<1>;
using OperandQ = WgmmaOperand<Major::k, BM, kBoxesD * kSwizzleBytes>;
using OperandK = WgmmaOperand<Major::k, BN, kBoxesD * kSwizzleBytes>;
using OperandV = WgmmaOperand<Major::k, kColumns, kTransposedBoxes * kSwizzleBytes>;
using Scores = float[1][BN / 2];
using Acc = float[kColumns / 2];
// A tile's values are summed in parts of their columns, so that only one part's sums are in
// registers beside the accumulators of all tiles.
template <int First>
using PartFrom = float[(kColumns - First < PART_COLUMNS ? kColumns - First : PART_COLUMNS) / 2];
using OperandP = RegisterOperand<BN / kStepBytes>;

// Storage by 32-bit shared address, from the first multiple of 1024 on, which the swizzle needs.
struct Addresses {
  static constexpr unsigned kK = QSTAGES * kQueryBytes;
  static constexpr unsigned kV = kK + STAGES * kKeyBytes;
  static constexpr unsigned kTransposed = kV + (TRANSPOSE ? 0 : STAGES * kValueBytes);
  static constexpr unsigned kKeyBarriers = kTransposed + STAGES * kTransposedBytes;
  static constexpr unsigned kValueBarriers = kKeyBarriers + TilePipeline::kBytes;
  static constexpr unsigned kTransposedBarriers = kValueBarriers + TilePipeline::kBytes;
  static constexpr unsigned kQueryBarriers = kTransposedBarriers + TilePipeline::kBytes;
  static constexpr unsigned kNumbers = kQueryBarriers + QueryPipeline::kBytes;
  static constexpr unsigned kBytes = kNumbers + NumberQueue::kBytes;

  unsigned base;
  __device__ unsigned q(int stage) const { return base + stage * kQueryBytes; }
  __device__ unsigned k(int stage) const { return base + kK + stage * kKeyBytes; }
  __device__ unsigned v(int stage) const { return base + kV + stage * kValueBytes; }
  __device__ unsigned transposed(int stage) const {
    return base + kTransposed + stage * kTransposedBytes;
  }
  __device__ unsigned key_barriers() const { return base + kKeyBarriers; }
  __device__ unsigned value_barriers() const { return base + kValueBarriers; }
  __device__ unsigned transposed_barriers() const { return base + kTransposedBarriers; }
  __device__ unsigned query_barriers() const { return base + kQueryBarriers; }
  __device__ unsigned numbers() const { return base + kNumbers; }
};
static_assert(Addresses::kBytes + 1024 <= SMEM_BYTES);

}  // namespace
