#pragma once
// The stages of a tile's operands, its sums, and their places in shared memory.

#include <kernwright/config.cuh>
#include <kernwright/quantized/codes.cuh>
#include <kernwright/tile/frame.cuh>
#include <kernwright/tile/pipeline.cuh>
#include <kernwright/tile/tile_schedule.cuh>
#include <kernwright/tile/wgmma_tile.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

constexpr int kBoxes = BK / 64;             // of 64 columns in a stage
constexpr int kBlocks = ROWS / 64;          // of 64 rows of weights in a tile
constexpr int kOwn = kBlocks / TEAM;        // of these that a consumer has
constexpr int kOwnTokens = TOKENS / SPLIT;  // rows of a that a block of a cluster finishes
constexpr int kChunk = kOwnTokens % 16 == 0 ? 16 : 8;  // rows of a whose sums are staged at once
constexpr int kStagedPitch = 64 + 4;            // floats of such a row, without bank conflicts
constexpr int kFactorRows = STAGE_GROUPS * 64;  // of a block, in a stage
constexpr int kScaleBytes = kFactorRows * static_cast<int>(sizeof(scale_t));
// TMA writes to multiples of 128 bytes.
constexpr int kScalesBytes = (kBlocks * kScaleBytes + 127) / 128 * 128;
constexpr int kZerosBytes = kZeros ? (kBlocks * kFactorRows + 127) / 128 * 128 : 0;
// The bytes of a stage. A box is always whole, and filled up behind the last row.
constexpr int kLoadedBytes = TOKENS * BK * 2 + kBlocks * kBoxes * kBlockBytes +
                             kBlocks * (kScaleBytes + (kZeros ? kFactorRows : 0));
static_assert(BK % 64 == 0 && ROWS % (64 * TEAM) == 0 && TOKENS % (8 * SPLIT) == 0);

// A producer of two kinds of loads needs more than 32 registers.
constexpr RegisterSplit kRegisters =
    WGS == 3 ? RegisterSplit{56, 152} : register_split(WGS, 1, false, false);
static_assert(can_be_claimed(kRegisters, WGS, 1));

// With SPLIT, the sums of all blocks of a cluster for the rows of a that this one finishes, and a
// barrier for them.
constexpr int kPartBytes = SPLIT > 1 ? ROWS* TOKENS * 4 : 0;
constexpr int kReceivedBytes = SPLIT > 1 ? 16 : 0;

using Schedule = TileSchedule<ROWS, TOKENS, CM, 1, SPLIT>;
using StageRing = Pipeline<STAGES, CM>;
using OperandA = WgmmaOperand<Major::k, TOKENS, BK>;

// The sums of a consumer, transposed: block i has 64 rows of weights, which are columns of d.
using Acc = float[kOwn][TOKENS / 2];
// The rows of a that this block finishes.
using Whole = float[kOwn][kOwnTokens / 2];

// Shared memory. It begins at a multiple of 1024 bytes, which the swizzle needs.
struct Storage {
  unsigned char a[STAGES][TOKENS * BK * 2];
  unsigned char codes[STAGES][kBlocks][kBoxes * kBlockBytes];
  unsigned char factors[STAGES][kScalesBytes + kZerosBytes];
  float staging[WGS][2][kChunk * kStagedPitch];
  unsigned char barriers[StageRing::kBytes];
};
static_assert(sizeof(Storage) + kReceivedBytes + kPartBytes + 1024 == SMEM_BYTES);

// 32-bit shared addresses of the parts of Storage.
struct Addresses {
  static constexpr unsigned kCodes = sizeof(Storage::a);
  static constexpr unsigned kFactors = kCodes + sizeof(Storage::codes);
  static constexpr unsigned kStaging = kFactors + sizeof(Storage::factors);
  static constexpr unsigned kBarriers = kStaging + sizeof(Storage::staging);

  unsigned base;
  __device__ unsigned a(int stage) const { return base + stage * sizeof(Storage::a[0]); }
  __device__ unsigned codes(int stage, int block) const {
    return base + kCodes + stage * sizeof(Storage::codes[0]) + block * sizeof(Storage::codes[0][0]);
  }
  __device__ unsigned scales(int stage, int block) const {
    return base + kFactors + stage * sizeof(Storage::factors[0]) + block * kScaleBytes;
  }
  __device__ unsigned zeros(int stage, int block) const {
    return scales(stage, 0) + kScalesBytes + block * kFactorRows;
  }
  __device__ unsigned staging(int consumer, int slot) const {
    return base + kStaging + consumer * sizeof(Storage::staging[0]) +
           slot * sizeof(Storage::staging[0][0]);
  }
  __device__ unsigned barriers() const { return base + kBarriers; }
  __device__ unsigned received() const { return barriers() + StageRing::kBytes; }
  __device__ unsigned parts() const { return received() + kReceivedBytes; }
};

}  // namespace
