#pragma once
// What the configuration makes of a tile: boxes of q, k and v, stages, and where in shared memory
// they lie.

#include <kernwright/attention/boxes.cuh>
#include <kernwright/attention/query_tile.cuh>
#include <kernwright/config.cuh>
#include <kernwright/tile/pipeline.cuh>
#include <kernwright/tile/wgmma_tile.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

// Rows of a box have 128 elements; what lies behind a head is zero.
constexpr int kQueryBoxes = (head_dim + kSwizzleBytes - 1) / kSwizzleBytes;
constexpr int kValueBoxes = (head_dim_v + kSwizzleBytes - 1) / kSwizzleBytes;
constexpr int kSteps = (head_dim + kStepBytes - 1) / kStepBytes;
// Rows of transposed values have the keys of a tile, in boxes of 128.
constexpr int kTransposedBoxes = (BN + kSwizzleBytes - 1) / kSwizzleBytes;

constexpr int kQueryBytes = kQueryBoxes * BM * kSwizzleBytes;
constexpr int kKeyBytes = kQueryBoxes * BN * kSwizzleBytes;
constexpr int kValueBytes = kValueBoxes * BN * kSwizzleBytes;
constexpr int kTransposedBytes = kTransposedBoxes * kColumns * kSwizzleBytes;

// The warps beside the one that loads transpose values.
constexpr int kTransposers = 3;

static_assert(BM == 64 * WGS && BN % kStepBytes == 0);

using TilePipeline = Pipeline<STAGES>;
using QueryPipeline = Pipeline<QSTAGES>;
using NumberPipeline = Pipeline<2>;
using OperandQ = WgmmaOperand<Major::k, BM, kQueryBoxes * kSwizzleBytes>;
using OperandK = WgmmaOperand<Major::k, BN, kQueryBoxes * kSwizzleBytes>;
using OperandV = WgmmaOperand<Major::k, kColumns, kTransposedBoxes * kSwizzleBytes>;
using Scores = float[1][BN / 2];
using Sums = float[kColumns / 2];
// With OVERLAP a tile's values are summed in two parts of their columns, so that only the sums of
// one are in registers beside those of all tiles.
constexpr int kFirstColumns = OVERLAP ? (kColumns / 2 + 15) / 16 * 16 : kColumns;
constexpr int kOtherColumns = kColumns - kFirstColumns;
template <int Columns>
using Part = float[Columns == 0 ? 1 : Columns / 2];
using Weights = RegisterOperand<BN / kStepBytes>;

// Shared memory from the first address that is a multiple of 1024, which the swizzle needs.
struct Storage {
  unsigned char q[QSTAGES][kQueryBytes];
  unsigned char k[STAGES][kKeyBytes];
  unsigned char v[STAGES][kValueBytes];
  unsigned char transposed[STAGES][kTransposedBytes];
  unsigned char barriers[3 * TilePipeline::kBytes + QueryPipeline::kBytes + NumberPipeline::kBytes];
  int numbers[2];
};
static_assert(sizeof(Storage) + 1024 <= SMEM_BYTES);

// Storage by 32-bit shared address.
struct Addresses {
  static constexpr unsigned kK = sizeof(Storage::q);
  static constexpr unsigned kV = kK + sizeof(Storage::k);
  static constexpr unsigned kTransposed = kV + sizeof(Storage::v);
  static constexpr unsigned kKeyBarriers = kTransposed + sizeof(Storage::transposed);
  static constexpr unsigned kValueBarriers = kKeyBarriers + TilePipeline::kBytes;
  static constexpr unsigned kTransposedBarriers = kValueBarriers + TilePipeline::kBytes;
  static constexpr unsigned kQueryBarriers = kTransposedBarriers + TilePipeline::kBytes;
  static constexpr unsigned kNumberBarriers = kQueryBarriers + QueryPipeline::kBytes;
  static constexpr unsigned kNumbers = kNumberBarriers + NumberPipeline::kBytes;

  unsigned base;
  __device__ unsigned q(int stage) const { return base + stage * kQueryBytes; }
  __device__ unsigned k(int stage) const { return base + kK + stage * kKeyBytes; }
  __device__ unsigned v(int stage) const { return base + kV + stage * kValueBytes; }
  __device__ unsigned transposed(int stage) const {
    return base + kTransposed + stage * kTransposedBytes;
  }
  __device__ unsigned number(int stage) const { return base + kNumbers + 4 * stage; }
  __device__ unsigned key_barriers() const { return base + kKeyBarriers; }
  __device__ unsigned value_barriers() const { return base + kValueBarriers; }
  __device__ unsigned transposed_barriers() const { return base + kTransposedBarriers; }
  __device__ unsigned query_barriers() const { return base + kQueryBarriers; }
  __device__ unsigned number_barriers() const { return base + kNumberBarriers; }
};

}  // namespace
