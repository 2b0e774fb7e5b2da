#pragma once
// The places of keys, values, and at the end the sums of warps in shared memory, and the query of
// each row of a block.

#include <kernwright/attention/boxes.cuh>
#include <kernwright/attention/narrow.cuh>
#include <kernwright/config.cuh>
#include <kernwright/tile/pipeline.cuh>
#include <kernwright/tile/softmax_tile.cuh>
#include <kernwright/tile/swizzle.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

constexpr int kGroup = heads / kv_heads;
constexpr int kKeys = 16;             // of a warp in a tile
constexpr int kTile = kKeys * WARPS;  // keys of a tile
constexpr int kKeyBytes = TileOfKeys<kTile>::kKeyBytes;
constexpr int kValueBytes = TileOfKeys<kTile>::kValueBytes;
constexpr int kStageBytes = kKeyBytes + kValueBytes;
constexpr bool kGathered = TileOfKeys<kTile>::kGathered;
constexpr int kLoaders = kGathered ? 32 : 1;  // threads that arrive for a tile
constexpr int kRows = 16 * M_TILES;
constexpr int kGroups = head_dim_v / 4;      // of 4 columns of a row
constexpr int kOfGroup = 16 / sizeof(kv_t);  // elements of 16 bytes
constexpr int kConsumers = 32 * WARPS;

// Bytes of the sums of a row. If there is room, four rows are in different banks.
constexpr bool kApart = STAGES * kStageBytes >= WARPS * kRows * (kColumns * 4 + 32);
constexpr int kSumsPitch = kColumns * 4 + (kApart ? 32 : 0);

// Clusters whose sums a thread copies at once, a multiple of 4.
constexpr int kAtOnce = STAGES * kStageBytes / (2 * 16 * kConsumers) / 4 * 4;

using TilePipeline = Pipeline<STAGES>;

static_assert(STAGES * kStageBytes >= WARPS * kRows * kColumns * 4, "sums meet in the ring");
static_assert(kAtOnce > 0);

struct Addresses {
  unsigned base;
  __device__ unsigned k(int stage) const { return base + stage * kStageBytes; }
  __device__ unsigned v(int stage) const { return k(stage) + kKeyBytes; }
  __device__ unsigned barriers() const { return base + STAGES * kStageBytes; }
  // Returns the address of the SoftmaxPart of a warp's row.
  __device__ unsigned part(int warp, int row) const {
    return barriers() + TilePipeline::kBytes + (warp * kRows + row) * sizeof(SoftmaxPart);
  }
  // Returns the address of a flag: this block is the last of its head.
  __device__ unsigned last() const { return part(WARPS, 0); }
  // Completes when the sums of the cluster's other blocks have landed.
  __device__ unsigned landed() const { return last() + 8; }
  // Returns the address of a row of a new token: the queries of the block's heads, and behind them
  // its key. Eight rows are in different banks.
  __device__ unsigned new_row(int row) const { return landed() + 8 + row * (head_dim * 2 + 16); }
  __device__ unsigned new_value() const { return new_row(kGroup + 1); }
  // Returns the address at which sums of the cluster's blocks land.
  __device__ unsigned landing() const {
    return append == append_none ? landed() + 8 : new_value() + head_dim_v * 2;
  }
  // Returns the address of the sums of a warp's row, where the ring was.
  __device__ unsigned sums(int warp, int row) const {
    return base + (warp * kRows + row) * kSumsPitch;
  }
  // Returns the address of the part of block `block` of the cluster for group `i`, of the `groups`
  // groups that this block adds up: the sums of 4 columns, and the SoftmaxPart of their row.
  __device__ unsigned landing(int block, int i, int groups) const {
    return landing() + (block * groups + i) * 16;
  }
  __device__ unsigned landing_part(int block, int i, int groups) const {
    return landing(CLUSTER, 0, groups) + (block * groups + i) * sizeof(SoftmaxPart);
  }
  // Returns the address of 16 bytes that this thread copies from the workspace, where the ring and
  // the sums were.
  __device__ unsigned copy(int i) const { return base + (i * kConsumers + threadIdx.x) * 16; }
};

// Returns the offset of 16 bytes of a row, in boxes with rows of `RowBytes`.
template <int RowBytes>
__device__ __forceinline__ unsigned group_address(unsigned tile, int row, int group) {
  constexpr int kOfBox = RowBytes / 16;
  return tile + (group / kOfBox * kTile + row) * RowBytes +
         swizzled_group<RowBytes>(row, group % kOfBox);
}
// Returns the address of two neighbouring groups of 16 bytes of 16 keys, as b of mma.sync for two
// columns of scores: keys lane / 4 of the first 8 and of the others. With fp8 the groups belong to
// two steps.
__device__ __forceinline__ unsigned key_address(unsigned keys, int first_key, int step) {
  const int lane = threadIdx.x % 32;
  if constexpr (kFp8) {
    return group_address<kRowD>(keys, first_key + lane % 16, step + lane / 16);
  }
  const int row = first_key + lane / 16 * 8 + lane % 8, group = step * 2 + lane / 8 % 2;
  return group_address<kRowD>(keys, row, group);
}
// Returns the address of 32 bytes of 16 values.
__device__ __forceinline__ unsigned value_address(unsigned values, int first_key, int column) {
  const int lane = threadIdx.x % 32;
  const int row = first_key + lane % 16, group = column / kOfGroup + lane / 16;
  return group_address<kRowDv>(values, row, group);
}

// Row r of the block is query r / kGroup of query head r % kGroup of the group.
__device__ __forceinline__ int query_of(int row) { return row / kGroup; }
__device__ __forceinline__ int head_of(int row, int kv_head) {
  return kv_head * kGroup + row % kGroup;
}

}  // namespace
