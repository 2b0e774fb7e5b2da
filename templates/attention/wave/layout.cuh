#pragma once
// The layout of a tile under the configuration: boxes of q, k and v, stages, and their places in
// shared memory.

#include <kernwright/attention/bias.cuh>
#include <kernwright/attention/boxes.cuh>
#include <kernwright/attention/query_tile.cuh>
#include <kernwright/config.cuh>
#include <kernwright/tile/frame.cuh>
#include <kernwright/tile/pipeline.cuh>
#include <kernwright/tile/wgmma_tile.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

constexpr int kQueryBytes = kBoxesD * BM * kSwizzleBytes;
constexpr int kKeyBytes = TileOfKeys<BN>::kKeyBytes;
constexpr int kValueBytes = TileOfKeys<BN>::kValueBytes;

constexpr int kHeads = PACK ? GROUP : 1;  // that share a tile
using Tile = QueryTile<kHeads>;
static_assert(BM == 64 * WGS && BN % 16 == 0);
constexpr bool kGathered = TileOfKeys<BN>::kGathered;
// Warps that load a bias need more registers than those that leave loads to TMA, and so do those
// that copy rows if three or four warpgroups leave them few.
constexpr RegisterSplit kBesideCopies = WGS == 4      ? RegisterSplit{32, 112}
                                        : WGS == 3    ? RegisterSplit{56, 152}
                                        : WGS == 2    ? RegisterSplit{56, 224}
                                        : BLOCKS == 2 ? RegisterSplit{56, 200}
                                                      : RegisterSplit{0, 0};
constexpr RegisterSplit kRegisters =
    COPIES ? kBesideCopies : register_split(WGS, BLOCKS, false, false);
static_assert(can_be_claimed(kRegisters, WGS, BLOCKS));

using TilePipeline = Pipeline<STAGES>;
using QueryPipeline = Pipeline<QSTAGES>;
using WorkQueue = TileQueue<8>;
using OperandQ = WgmmaOperand<Major::k, BM, kBoxesD * kBoxElements>;
using OperandK = WgmmaOperand<Major::k, BN, kBoxesD * kBoxElements>;
using OperandV = WgmmaOperand<Major::mn, kBoxesDv * kBoxElements, BN>;
using Scores = float[1][BN / 2];
using Acc = float[kColumns / 2];
using OperandP = RegisterOperand<BN / 16>;

// The bias of a tile's scores is in pieces of a warpgroup's 64 rows, or of one row that all share.
// Rows are so far apart that a warp's reads meet all banks.
constexpr int kBiasPiece = BIAS_ROWS * BIAS_PITCH;
using BiasPipeline = Pipeline<WGS * BIAS_STAGES>;

// 32-bit shared addresses, from the first multiple of 1024 on, which the swizzle needs.
struct Addresses {
  static constexpr unsigned kK = QSTAGES * kQueryBytes;
  static constexpr unsigned kV = kK + STAGES * kKeyBytes;
  static constexpr unsigned kKeyBarriers = kV + STAGES * kValueBytes;
  static constexpr unsigned kValueBarriers = kKeyBarriers + TilePipeline::kBytes;
  static constexpr unsigned kQueryBarriers = kValueBarriers + TilePipeline::kBytes;
  static constexpr unsigned kWork = kQueryBarriers + QueryPipeline::kBytes;
  static constexpr unsigned kBias = (kWork + WorkQueue::kBytes + 15) / 16 * 16;
  static constexpr unsigned kBiasBarriers = kBias + WGS * BIAS_STAGES * kBiasPiece;
  static constexpr unsigned kBytes =
      biased ? kBiasBarriers + BiasPipeline::kBytes : kWork + WorkQueue::kBytes;

  unsigned base;
  __device__ unsigned q(int stage) const { return base + stage * kQueryBytes; }
  __device__ unsigned k(int stage) const { return base + kK + stage * kKeyBytes; }
  __device__ unsigned v(int stage) const { return base + kV + stage * kValueBytes; }
  __device__ unsigned key_barriers() const { return base + kKeyBarriers; }
  __device__ unsigned value_barriers() const { return base + kValueBarriers; }
  __device__ unsigned query_barriers() const { return base + kQueryBarriers; }
  __device__ unsigned work() const { return base + kWork; }
  __device__ unsigned bias(int stage) const { return base + kBias + stage * kBiasPiece; }
  __device__ unsigned bias_barriers() const { return base + kBiasBarriers; }
};
static_assert(Addresses::kBytes + 1024 <= SMEM_BYTES && Addresses::kBiasBarriers % 8 == 0);

}  // namespace
