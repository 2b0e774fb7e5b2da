#pragma once
// The boxes and stages of a tile's operands, the chunks of its result, and their places in shared
// memory.

#include <kernwright/config.cuh>
#include <kernwright/matmul/block_scales.cuh>
#include <kernwright/matmul/wgmma_epilogue.cuh>
#include <kernwright/ptx/cluster.cuh>
#include <kernwright/tile/frame.cuh>
#include <kernwright/tile/pipeline.cuh>
#include <kernwright/tile/tile_schedule.cuh>
#include <kernwright/tile/tile_store.cuh>
#include <kernwright/tile/wgmma_tile.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

constexpr int kCluster = CM * CN;  // blocks that share their loads; SPLIT times as many a cluster
constexpr int kRowBytes = kSwizzleBytes;  // of a TMA box
constexpr int kBoxK = kRowBytes / sizeof(dtype_t);
constexpr int kBoxes = DEPTH / kBoxK;    // boxes along k of a stage
constexpr int kBlocks = BM / TEAM / 64;  // 64-row blocks per consumer
constexpr int kChunks =
    (COLUMNS + CHUNK - 1) / CHUNK;  // per block; the last one overlaps its neighbour if need be
constexpr int kStores = kBlocks * kChunks;
constexpr int kAddendStages =
    (kRowScaled ? 1 : 0) + (kBias ? 1 : 0) + (kResidual ? kChunks : 0);  // after the operands
constexpr bool kScaled = scaling == scaling_block;
// B as [k, n] is loaded in boxes of 64 columns and the whole depth of a stage; a cluster shares it
// in slices of k. B as [n, k] is loaded in SLICES boxes of rows for each kBoxK of k. If SLICES is
// less than CM, the blocks that share B take turns: block r loads all of B in every CM-th stage
// (kTurns).
constexpr Major kMajorB = b_layout == b_layout_kn ? Major::mn : Major::k;
constexpr bool kTurns = kMajorB == Major::k && SLICES < CM;

constexpr RegisterSplit kRegisters =
    register_split(CONSUMERS, 1, !kScaled && ACCUMULATORS + PARTS + WAITING >= 176, false);

using TilePipeline = Pipeline<STAGES, CM, CN>;
using TileStaging = Staging<SLOTS == 0 ? 1 : SLOTS>;  // without slots every tile is a block's last
using Schedule = TileSchedule<BM, COLUMNS, CM, CN, SPLIT>;

constexpr int kStagingBytes = CONSUMERS * 4 * SLOTS * kChunkBytes;
constexpr int kReceivedBytes = SPLIT > 1 ? 16 : 0;  // a barrier

// Shared memory. It begins at a multiple of 1024 bytes, which the swizzle needs. The scales of each
// stage follow it.
struct Storage {
  unsigned char a[STAGES][kBoxes][BM * kRowBytes];
  unsigned char b[STAGES][kBoxes][BN * kRowBytes];
  unsigned char others[kStagingBytes + TilePipeline::kBytes + kReceivedBytes];
};
// The sums of other blocks for the rows that belong to this one, with SPLIT. They take the place of
// the ring, behind the staged tile.
constexpr int kPartBytes = BM * BN * 4 / SPLIT * (SPLIT - 1);
static_assert(sizeof(Storage) + STAGES * SCALE_BYTES + 1024 == SMEM_BYTES);
static_assert(!kScaled || (SCALE_BYTES == StageScales<BM>::kBytes && DEPTH == kScaleBlock));
static_assert(sizeof(Storage::a) % 1024 == 0 && sizeof(Storage::b) % 1024 == 0);
static_assert(BM % (64 * TEAM) == 0 && COLUMNS % 8 == 0 && DEPTH % kBoxK == 0);
static_assert(BN % (8 * SLICES) == 0 && SLICES % STACK == 0 && COLUMNS >= CHUNK);
static_assert(kTurns || SLICES % CM == 0);
static_assert(kMajorB == Major::k || (COLUMNS % 64 == 0 && DEPTH % (8 * CM) == 0));
static_assert(!PROMOTED || DEPTH <= 128, "more products than the tensor cores may sum");
static_assert(CHUNK == kChunkColumns<out_t>);
static_assert(kChunks * BM * kRowBytes <= STAGES * STAGE_BYTES,
              "the last tile leaves through the ring");
static_assert(!TRANSPOSED ||
              (ALIGNED_D && sizeof(out_t) == 2 && kMajorB == Major::k && batch == 1));
static_assert(SPLIT == 1 || (!OVERLAP && !PINGPONG && kAddendStages == 0));
static_assert(!PINGPONG || (CONSUMERS == 2 && !OVERLAP && !PROMOTED));
static_assert(!PINGPONG || kAddendStages + 2 <= STAGES, "awaited while two stages are held");

// 32-bit shared addresses of the parts of Storage.
struct Addresses {
  static constexpr unsigned kB = sizeof(Storage::a);
  static constexpr unsigned kStaging = kB + sizeof(Storage::b);
  static constexpr unsigned kBarriers = kStaging + kStagingBytes;
  static constexpr unsigned kReceived = kBarriers + TilePipeline::kBytes;
  static constexpr unsigned kParts = kChunks * BM * kRowBytes;
  static_assert(kReceived + kReceivedBytes == sizeof(Storage));
  static_assert(SPLIT == 1 || kParts + kPartBytes <= STAGES * STAGE_BYTES);

  unsigned base;
  __device__ unsigned a(int stage) const { return base + stage * sizeof(Storage::a[0]); }
  __device__ unsigned b(int stage) const { return base + kB + stage * sizeof(Storage::b[0]); }
  // In the B part: a consumer may stage its last rows in the A part before others read the bias.
  __device__ unsigned bias(int stage) const { return b(stage); }
  // The scales of the tile's rows of b, of either half.
  __device__ unsigned column_scales(int stage) const { return b(stage); }
  __device__ unsigned staging(int warp) const {
    return base + kStaging + warp * TileStaging::kBytes;
  }
  __device__ unsigned barriers() const { return base + kBarriers; }
  __device__ unsigned parts() const { return base + kParts; }
  __device__ unsigned received() const {
    return base + kReceived;
  }  // barrier: all parts have landed
  __device__ StageScales<BM> scales(int stage) const {
    return {base + static_cast<unsigned>(sizeof(Storage)) + stage * SCALE_BYTES};
  }
};

// A warp stores its rows in kStores chunks of 16 rows and CHUNK columns, one block of 64 rows after
// the other. These return the row and column, in the warp's rows, at which chunk `index` begins.
__device__ __forceinline__ constexpr int chunk_row(int index) { return index / kChunks * 64; }
__device__ __forceinline__ constexpr int chunk_column(int index) {
  const int column = index % kChunks * CHUNK;
  return column + CHUNK <= COLUMNS ? column : COLUMNS - CHUNK;
}

// The accumulators of a consumer thread, for each of its blocks of 64 rows.
using Acc = float[kBlocks][BN / 2];

// The steps of k that a block multiplies, of `all`: with SPLIT a part of them.
struct Steps {
  int first = 0, last;

  __device__ __forceinline__ explicit Steps(int all) : last(all) {
    if constexpr (SPLIT > 1) {
      const int part = cluster_rank() / kCluster;
      first = part * all / SPLIT;
      last = (part + 1) * all / SPLIT;
    }
  }
};

// Returns the rank of the first block that takes the same part of k as this one.
__device__ __forceinline__ int first_sharer() {
  return SPLIT == 1 ? 0 : cluster_rank() / kCluster * kCluster;
}

// The bias and the residual, which the epilogue adds to the sums, and the scale factors.
struct Addends {
  const TensorMap& map_residual;
  const out_t* bias;
  RowScales scales;
  float alpha, beta;
  int m, n;
};

}  // namespace
