#pragma once
// The places of keys, queries, weights, and at the end sums in shared memory.

#include <kernwright/config.cuh>
#include <kernwright/tile/frame.cuh>
#include <kernwright/tile/pipeline.cuh>
#include <kernwright/tile/softmax_tile.cuh>
#include <kernwright/tile/swizzle.cuh>
#include <kernwright/tile/wgmma_tile.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

constexpr int kTile = 64;   // keys of a tile: the rows of a wgmma
constexpr int kOfBox = 64;  // elements of a row of a box
constexpr int kLatentBoxes = latent / kOfBox;
constexpr int kBoxes = BOXES;  // of latents, and the last one of rotated parts
constexpr int kBoxBytes = kTile * kSwizzleBytes;
constexpr int kStageBytes = kBoxes * kBoxBytes;
constexpr int kQueryBoxBytes = ROWS * kSwizzleBytes;
constexpr int kQueryBytes = kBoxes * kQueryBoxBytes;
constexpr int kWeightBytes = ROWS * kSwizzleBytes;  // a row of 64 keys is a row of 128 bytes
constexpr bool kGathered = BOX_KEYS == 1;
constexpr RegisterSplit kRegisters = register_split(WGS, 1, false, kGathered);
constexpr int kLoaders = kGathered ? 32 : 1;  // threads that arrive for a tile
constexpr int kConsumers = 128 * WGS;
constexpr int kGroups = latent / 4;  // of 4 columns of a row
// Latents of a row in the sums. Columns 2 * (lane % 4) of the accumulators are then in other banks.
constexpr int kSumsPitch = (latent + 4) * 4;
constexpr int kSumsBytes = WGS * ROWS * kSumsPitch;
constexpr int kOfBlock = (ROWS * kGroups + CLUSTER - 1) / CLUSTER;  // groups that a block adds up
constexpr int kLandingBytes = CLUSTER == 1 ? 0 : CLUSTER * kOfBlock * 24;
// Clusters whose sums a thread copies at once, a multiple of 4.
constexpr int kAtOnce = STAGES * kStageBytes / (2 * 16 * kConsumers) / 4 * 4;

using TilePipeline = Pipeline<STAGES>;
using Scores = float[1][ROWS / 2];
using Acc = float[kLatentBoxes][ROWS / 2];
using Columns = float[ROWS / 4];  // of a thread: 2 of every 8 rows of queries
using OperandC = WgmmaOperand<Major::k, kTile, kBoxes * kOfBox>;
using OperandQ = WgmmaOperand<Major::k, ROWS, kBoxes * kOfBox>;
using OperandV = WgmmaOperand<Major::mn, latent, kTile>;
using OperandP = WgmmaOperand<Major::k, ROWS, kTile>;

static_assert(kSumsBytes + kLandingBytes <= STAGES * kStageBytes + kQueryBytes);
static_assert(kAtOnce > 0);

struct Addresses {
  unsigned base;
  __device__ unsigned stage(int stage) const { return base + stage * kStageBytes; }
  __device__ unsigned queries() const { return base + STAGES * kStageBytes; }
  __device__ unsigned weights(int group) const {
    return queries() + kQueryBytes + group * kWeightBytes;
  }
  // Returns the address of the numbers that the warps of a warpgroup exchange for each of their
  // rows. Tiles use two such areas in turn.
  __device__ unsigned exchange(int group, int turn, int warp) const {
    return weights(WGS) + ((group * 2 + turn) * 4 + warp) * ROWS * 4;
  }
  __device__ unsigned part(int group, int row) const {
    return exchange(WGS, 0, 0) + (group * ROWS + row) * static_cast<int>(sizeof(SoftmaxPart));
  }
  __device__ unsigned barriers() const { return part(WGS, 0); }
  __device__ unsigned landed() const { return barriers() + TilePipeline::kBytes; }
  __device__ unsigned last() const { return landed() + 8; }
  // Sums are where keys and queries were, and behind them is what other blocks send.
  __device__ unsigned sums(int group, int row) const {
    return base + (group * ROWS + row) * kSumsPitch;
  }
  __device__ unsigned landing(int block, int i, int groups) const {
    return base + kSumsBytes + (block * groups + i) * 16;
  }
  __device__ unsigned landing_part(int block, int i, int groups) const {
    return landing(CLUSTER, 0, groups) +
           (block * groups + i) * static_cast<int>(sizeof(SoftmaxPart));
  }
  __device__ unsigned copy(int i) const { return base + (i * kConsumers + threadIdx.x) * 16; }
};
static_assert(STAGES * kStageBytes + kQueryBytes + WGS * (kWeightBytes + 40 * ROWS) +
                  TilePipeline::kBytes + 16 + 1024 <=
              SMEM_BYTES);

}  // namespace
