#pragma once
// The layout of a tile under the configuration: boxes of q, k and v, stages, and their places in
// shared memory.

#include <kernwright/attention/boxes.cuh>
#include <kernwright/attention/query_tile.cuh>
#include <kernwright/config.cuh>
#include <kernwright/tile/pipeline.cuh>
#include <kernwright/tile/wgmma_tile.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

constexpr int kQueryBytes = kBoxesD * BM * kSwizzleBytes;
constexpr int kKeyBytes = TileOfKeys<BN>::kKeyBytes;
constexpr int kValueBytes = TileOfKeys<BN>::kValueBytes;
constexpr int kWorkWords = 8;  // of a tile of queries that is published

constexpr int kHeads = PACK ? GROUP : 1;  // that share a tile
constexpr int kQueries = BM / kHeads;     // of each
static_assert(BM == 64 * WGS && BN % 16 == 0 && BM % kHeads == 0);

// Rows of a tile are the heads of each query or, if heads are apart in memory, the queries of each
// head.
constexpr bool kHeadsInside = layout == layout_bshd;
__device__ __forceinline__ int query_of(const Tile& tile, int row) {
  return tile.row + (kHeadsInside ? row / kHeads : row % kQueries);
}
__device__ __forceinline__ int head_of(const Tile& tile, int row) {
  return tile.head + (kHeadsInside ? row % kHeads : row / kQueries);
}

using TilePipeline = Pipeline<STAGES>;
using QueryPipeline = Pipeline<QSTAGES>;
using WorkPipeline = Pipeline<2>;
using OperandQ = WgmmaOperand<Major::k, BM, kBoxesD * kBoxElements>;
using OperandK = WgmmaOperand<Major::k, BN, kBoxesD * kBoxElements>;
using OperandV = WgmmaOperand<Major::mn, kBoxesDv * kBoxElements, BN>;
using Scores = float[1][BN / 2];
using Acc = float[kColumns / 2];
using OperandP = RegisterOperand<BN / 16>;

// Shared memory from the first address that is a multiple of 1024, which the swizzle needs.
struct Storage {
  unsigned char q[QSTAGES][kQueryBytes];
  unsigned char k[STAGES][kKeyBytes];
  unsigned char v[STAGES][kValueBytes];
  unsigned char barriers[2 * TilePipeline::kBytes + QueryPipeline::kBytes + WorkPipeline::kBytes];
  int work[2][kWorkWords];
};
static_assert(sizeof(Storage) + 1024 <= SMEM_BYTES);

// Storage by 32-bit shared address.
struct Addresses {
  static constexpr unsigned kK = sizeof(Storage::q);
  static constexpr unsigned kV = kK + sizeof(Storage::k);
  static constexpr unsigned kKeyBarriers = kV + sizeof(Storage::v);
  static constexpr unsigned kValueBarriers = kKeyBarriers + TilePipeline::kBytes;
  static constexpr unsigned kQueryBarriers = kValueBarriers + TilePipeline::kBytes;
  static constexpr unsigned kWorkBarriers = kQueryBarriers + QueryPipeline::kBytes;
  static constexpr unsigned kWork = kWorkBarriers + WorkPipeline::kBytes;

  unsigned base;
  __device__ unsigned q(int stage) const { return base + stage * kQueryBytes; }
  __device__ unsigned k(int stage) const { return base + kK + stage * kKeyBytes; }
  __device__ unsigned v(int stage) const { return base + kV + stage * kValueBytes; }
  __device__ unsigned work(int stage) const { return base + kWork + 4 * kWorkWords * stage; }
  __device__ unsigned key_barriers() const { return base + kKeyBarriers; }
  __device__ unsigned value_barriers() const { return base + kValueBarriers; }
  __device__ unsigned query_barriers() const { return base + kQueryBarriers; }
  __device__ unsigned work_barriers() const { return base + kWorkBarriers; }
};

}  // namespace
