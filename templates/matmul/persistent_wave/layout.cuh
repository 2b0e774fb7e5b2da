#pragma once
// What the configuration makes of a tile: boxes and stages of operands, chunks of the result, and
// where in shared memory they lie.

#include <kernwright/config.cuh>
#include <kernwright/matmul/wgmma_epilogue.cuh>
#include <kernwright/tile/pipeline.cuh>
#include <kernwright/tile/tile_schedule.cuh>
#include <kernwright/tile/tile_store.cuh>
#include <kernwright/tile/wgmma_tile.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

constexpr int kCluster = CM * CN;
constexpr int kRowBytes = kSwizzleBytes;  // of a TMA box
constexpr int kBoxK = kRowBytes / sizeof(dtype_t);
constexpr int kBoxes = DEPTH / kBoxK;    // boxes along k of a stage
constexpr int kBlocks = BM / TEAM / 64;  // 64-row blocks per consumer
constexpr int kChunks =
    (COLUMNS + CHUNK - 1) / CHUNK;  // per block; the last one overlaps its neighbour if need be
constexpr int kStores = kBlocks * kChunks;
constexpr int kAddendStages = (kBias ? 1 : 0) + (kResidual ? kChunks : 0);  // behind a tile's own
// As [k, n], B comes in boxes of 64 columns and all of a stage's k; a cluster's slices are of k
// then. Else a stage's B is SLICES boxes for each kBoxK of k, and where these are no CM parts, the
// blocks that share it load all of it by turns.
constexpr Major kMajorB = b_layout == b_layout_kn ? Major::mn : Major::k;
constexpr bool kTurns = kMajorB == Major::k && SLICES < CM;

using TilePipeline = Pipeline<STAGES, CM, CN>;
using Schedule = TileSchedule<BM, COLUMNS, CM, CN>;

// Shared memory from the first address that is a multiple of 1024, which the swizzle needs.
struct Storage {
  unsigned char a[STAGES][kBoxes][BM * kRowBytes];
  unsigned char b[STAGES][kBoxes][BN * kRowBytes];
  unsigned char staging[CONSUMERS * 4][Staging::kBytes];
  unsigned char barriers[TilePipeline::kBytes];
};
static_assert(sizeof(Storage) + 1024 == SMEM_BYTES);
static_assert(sizeof(Storage::a) % 1024 == 0 && sizeof(Storage::b) % 1024 == 0);
static_assert(BM % (64 * TEAM) == 0 && COLUMNS % 8 == 0 && DEPTH % kBoxK == 0);
static_assert(BN % (8 * SLICES) == 0 && SLICES % STACK == 0 && COLUMNS >= CHUNK);
static_assert(kTurns || SLICES % CM == 0);
static_assert(kMajorB == Major::k || (COLUMNS % 64 == 0 && DEPTH % (8 * CM) == 0));
static_assert(!PROMOTED || DEPTH <= 128, "more products than the tensor cores may sum");
static_assert(CHUNK == kChunkColumns<out_t>);
static_assert(kChunks * BM * kRowBytes <= STAGES * STAGE_BYTES,
              "the last tile leaves through the ring");
static_assert(!PINGPONG || (CONSUMERS == 2 && !OVERLAP && !PROMOTED));
static_assert(!PINGPONG || kAddendStages + 2 <= STAGES, "awaited while two stages are held");

// Storage by 32-bit shared address.
struct Addresses {
  static constexpr unsigned kB = sizeof(Storage::a);
  static constexpr unsigned kStaging = kB + sizeof(Storage::b);
  static constexpr unsigned kBarriers = kStaging + sizeof(Storage::staging);
  static_assert(kBarriers + sizeof(Storage::barriers) == sizeof(Storage));

  unsigned base;
  __device__ unsigned a(int stage) const { return base + stage * sizeof(Storage::a[0]); }
  __device__ unsigned b(int stage) const { return base + kB + stage * sizeof(Storage::b[0]); }
  // Where B is else: a consumer's last rows may leave through A before others read the bias.
  __device__ unsigned bias(int stage) const { return b(stage); }
  __device__ unsigned staging(int warp) const {
    return base + kStaging + warp * sizeof(Storage::staging[0]);
  }
  __device__ unsigned barriers() const { return base + kBarriers; }
};

// A warp's rows leave in kStores chunks of 16 rows and CHUNK columns: chunk by chunk, 64-row block
// by block.
__device__ __forceinline__ constexpr int chunk_row(int index) { return index / kChunks * 64; }
__device__ __forceinline__ constexpr int chunk_column(int index) {
  const int column = index % kChunks * CHUNK;
  return column + CHUNK <= COLUMNS ? column : COLUMNS - CHUNK;
}

// The accumulators of a consumer thread, those of each block of 64 rows.
using Sums = float[kBlocks][BN / 2];

// What the epilogue adds to the sums, and its factors.
struct Addends {
  const TensorMap& map_residual;
  const out_t* bias;
  float alpha, beta;
  int m, n;
};

}  // namespace
