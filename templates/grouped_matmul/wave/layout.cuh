#pragma once
// The boxes and stages of a tile's operands, its accumulators, and their places in shared memory.

#include <kernwright/config.cuh>
#include <kernwright/matmul/block_scales.cuh>
#include <kernwright/matmul/group_schedule.cuh>
#include <kernwright/tile/frame.cuh>
#include <kernwright/tile/pipeline.cuh>
#include <kernwright/tile/swizzle.cuh>
#include <kernwright/tile/wgmma_tile.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

constexpr int kRowBytes = kSwizzleBytes;  // of a TMA box
constexpr int kDepth = kRowBytes / sizeof(dtype_t);
constexpr int kProducts = kDepth * sizeof(dtype_t) / kStepBytes;
constexpr int kStagedRows = BM < 32 ? BM : 32;  // of a chunk, which has 64 columns

constexpr bool kGathers = a_rows == a_rows_indexed;
constexpr bool kTurns = b_layout == b_layout_kn;  // a stage of b has rows of k
constexpr bool kInterleaves = gate == gate_interleaved;
constexpr Major kMajorB = kTurns ? Major::mn : Major::k;
constexpr int kColumnStep = kInterleaves ? 2 : 1;  // rows of b from a column of d to the next
constexpr int kGatherers = 2;  // warps of the producer that copy rows of an indexed a

constexpr RegisterSplit kRegisters =
    register_split(CONSUMERS, 1, ACCUMULATORS >= 160, SCALED || kGathers);

using TilePipeline = Pipeline<STAGES, 1, CN>;
using Schedule = GroupSchedule<groups, BM, COLUMNS, CN>;

// Shared memory. It begins at a multiple of 1024 bytes, which the swizzle needs. The scales of each
// stage follow it.
struct Storage {
  unsigned char b[STAGES][BN * kRowBytes];
  unsigned char a[STAGES][BM * kRowBytes];
  unsigned char staging[CONSUMERS][2][kStagedRows * kRowBytes];
  unsigned char barriers[TilePipeline::kBytes];
  unsigned char table[Schedule::kTableBytes];
};
static_assert(sizeof(Storage) + STAGES * SCALE_BYTES + 1024 == SMEM_BYTES);
static_assert(!SCALED || (SCALE_BYTES == StageScales<BM>::kBytes && kDepth == kScaleBlock));
static_assert(BN == 64 * TEAM * BLOCKS && BM % STEP == 0 && BM % BOX == 0 && BOX % 8 == 0);

// 32-bit shared addresses of the parts of Storage.
struct Addresses {
  static constexpr unsigned kA = sizeof(Storage::b);
  static constexpr unsigned kStaging = kA + sizeof(Storage::a);
  static constexpr unsigned kBarriers = kStaging + sizeof(Storage::staging);
  static constexpr unsigned kTable = kBarriers + sizeof(Storage::barriers);

  unsigned base;
  __device__ unsigned b(int stage) const { return base + stage * sizeof(Storage::b[0]); }
  __device__ unsigned a(int stage) const { return base + kA + stage * sizeof(Storage::a[0]); }
  __device__ unsigned staging(int consumer, int slot) const {
    return base + kStaging + consumer * sizeof(Storage::staging[0]) +
           slot * sizeof(Storage::staging[0][0]);
  }
  __device__ unsigned barriers() const { return base + kBarriers; }
  __device__ unsigned table() const { return base + kTable; }
  __device__ StageScales<BM> scales(int stage) const {
    return {base + static_cast<unsigned>(sizeof(Storage)) + stage * SCALE_BYTES};
  }
};

// The sums of a tile of N rows, transposed: block i has 64 columns of d, or 64 gates, or the 64
// columns that these open, or both in turn.
template <int N>
using Acc = float[BLOCKS][N / 2];

}  // namespace
