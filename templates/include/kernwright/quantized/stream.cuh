#pragma once
// Parts of products that stream packed weights to a few rows of a (Hopper). Tiles are ROWS rows of
// weights, and each thread block takes an equal run of the blocks of all tiles. A run may begin and
// end within a tile. The warps of a thread block have one of three jobs:
//
// loader     fills a ring by bulk copies and boxes: codes, with the scales and zero points of their
//            groups. It knows the run, so the ring never drains.
// consumers  turn codes to numbers and multiply them by A, which is in shared memory, or comes with
//            the stages (STAGED). Sums of a group are multiplied by its scale in fp32, or numbers
//            themselves by powers of two. A consumer takes SLABS of a tile's slabs of 16 rows, and
//            every WARPS_K-th block of a stage.
// finishers  add the sums of the consumers in the order of the warps, a slab each, and store a tile
//            of D, while the consumers go on.
//
// A run is taken from its last tile to its first. So a tile that ends in the next run is the first
// thing that is done, and its sums are in memory before the next run, which stores the tile, needs
// them: the run's first tile is its last one.
//
// A kernel has a Shape: `tile_blocks()`, the blocks of a tile along k; `begin_of(number)`, the
// first block in the run of a thread block; `groups`, of the scales, and `group_of(column)`;
// `reads`, false if all sums are 0. Tile `i` has part `i % (64 / ROWS)` of a row of blocks.

#include <kernwright/config.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/flag.cuh>
#include <kernwright/ptx/ldmatrix.cuh>
#include <kernwright/ptx/mbarrier.cuh>
#include <kernwright/ptx/mma.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/ptx/tma.cuh>
#include <kernwright/quantized/codes.cuh>
#include <kernwright/quantized/staged_factors.cuh>
#include <kernwright/tile/frame.cuh>
#include <kernwright/tile/pipeline.cuh>

namespace kernwright {

using namespace config;

constexpr int kHalves = BM / 8;           // of the rows of a
constexpr int kStageBlocks = CHUNK / 64;  // of weights
constexpr int kTilesOfBlock = 64 / ROWS;
constexpr int kTileSlabs = ROWS / 16;
constexpr int kPartBytes = kBlockBytes / kTilesOfBlock;  // a tile's codes of a block
constexpr int kParts = 64 / SCALED;  // of a block's columns, with scales of their own
constexpr int kScalesAt = kStageBlocks * kPartBytes;
constexpr int kZerosAt = kScalesAt + STAGE_GROUPS * 64 * static_cast<int>(sizeof(scale_t));
// The rows of a in a stage, if they come with it, at a pitch without bank conflicts.
constexpr int kRowsAt = (kZerosAt + (kZeros ? STAGE_GROUPS * 64 : 0) + 15) / 16 * 16;
constexpr int kStagedPitch = CHUNK * 2 + 16;
static_assert(kRowsAt + STAGED * A_ROWS * kStagedPitch <= STAGE_BYTES);
constexpr int kFinishers = kTileSlabs;

using StageRing = Pipeline<STAGES>;
using SumsRing = Pipeline<2>;

// 32-bit addresses in shared memory.
struct Addresses {
  static constexpr unsigned kSums = STAGES * STAGE_BYTES;
  static constexpr unsigned kBarriers = kSums + SUMS_BYTES;
  static constexpr unsigned kRest =
      (kBarriers + StageRing::kBytes + SumsRing::kBytes + 15) / 16 * 16;
  static_assert(kRest + 1024 == FIXED_BYTES);

  unsigned base, pitch_a;  // of rows of a that do not come with the stages, in bytes
  __device__ unsigned stage(int i) const { return base + i * STAGE_BYTES; }
  // Returns the address of what only one kernel has; of a, if its rows do not come with the stages.
  __device__ unsigned rest() const { return base + kRest; }
  __device__ unsigned a(int row, int column) const { return rest() + row * pitch_a + column * 2; }
  // Returns the address of this lane's sums of a slab.
  __device__ unsigned sums(int buffer, int slab, int warp_k, int half) const {
    const int unit = ((buffer * kTileSlabs + slab) * WARPS_K + warp_k) * kHalves + half;
    return base + kSums + unit * 512 + threadIdx.x % 32 * 16;
  }
  __device__ unsigned stage_barriers() const { return base + kBarriers; }
  __device__ unsigned sums_barriers() const { return stage_barriers() + StageRing::kBytes; }
};

// The tiles of this thread block's run, from the last one to the first: block columns first to
// last - 1 of each.
template <typename Shape>
class Run {
 public:
  __device__ explicit Run(const Shape& shape)
      : blocks_(shape.tile_blocks()),
        begin_(shape.begin_of(blockIdx.x)),
        end_(shape.begin_of(blockIdx.x + 1)) {}

  int tile = 0, first = 0, last = 0;

  // Turns to the next tile, if there is one.
  __device__ __forceinline__ bool next() {
    if (end_ <= begin_) return false;
    tile = (end_ - 1) / blocks_;
    const int start = ::max(begin_, tile * blocks_);
    first = start - tile * blocks_;
    last = end_ - tile * blocks_;
    end_ = start;
    return true;
  }
  __device__ bool starts_tile() const { return first == 0; }
  __device__ bool ends_tile() const { return last == blocks_; }

 private:
  int blocks_, begin_, end_;
};

// The stages of a run in their order: in each, `count` blocks of the tile from block `column` on.
template <typename Shape>
struct Cursor {
  __device__ Cursor(const Shape& shape, Addresses at) : run(shape), ring(at.stage_barriers()) {}

  Run<Shape> run;
  StageRing ring;
  int column = 0, count = 0;

  // Turns to the next stage, if there is one.
  __device__ __forceinline__ bool next() {
    if (count > 0) ring.advance();
    column += count;
    if (column == run.last) {
      count = 0;
      if (!run.next()) return false;
      column = run.first;
    }
    count = ::min(kStageBlocks, run.last - column);
    return true;
  }
};

// Loads the weights of a stage, of row of blocks `row` of b. `map_codes` has boxes of a stage's
// parts of blocks, and is not read if a tile has all rows of its blocks. The stage also waits for
// `row_bytes` of rows of a. Run by a whole warp, whose lanes share the copies.
template <typename Shape>
__device__ __forceinline__ void load_weights(const Cursor<Shape>& stage, const Shape& shape,
                                             Addresses at, const unsigned char* b,
                                             const TensorMap& map_codes, const scale_t* scales,
                                             const unsigned char* zeros, long long row,
                                             unsigned row_bytes) {
  const int first_group = shape.group_of(stage.column * 64);
  const int groups = shape.group_of((stage.column + stage.count) * 64 - 1) - first_group + 1;
  const long long factors = (row * shape.groups + first_group) * 64;
  const unsigned scale_bytes = groups * 64 * sizeof(scale_t), zero_bytes = groups * 64;
  const unsigned to = at.stage(stage.ring.stage()), full = stage.ring.full();
  const int lane_id = threadIdx.x % 32;
  stage.ring.warp_acquire(stage.count * kPartBytes + scale_bytes + (kZeros ? zero_bytes : 0) +
                          row_bytes);
  const unsigned char* const codes = b + (row * shape.tile_blocks() + stage.column) * kBlockBytes +
                                     stage.run.tile % kTilesOfBlock * kPartBytes;
  if (kTilesOfBlock == 1) {
    if (lane_id == 0) bulk_load_once(to, codes, stage.count * kPartBytes, full);
  } else if (stage.count == kStageBlocks) {
    // A copy for each block would take longer than the memory.
    if (lane_id == 0) {
      tma_load_once(to, map_codes,
                    {0, 0, stage.run.tile % kTilesOfBlock, stage.column, static_cast<int>(row)},
                    full);
    }
  } else if (lane_id < stage.count) {
    bulk_load_once(to + lane_id * kPartBytes, codes + lane_id * kBlockBytes, kPartBytes, full);
  }
  if (lane_id == 30) bulk_load_once(to + kScalesAt, scales + factors, scale_bytes, full);
  if (kZeros && lane_id == 31) bulk_load_once(to + kZerosAt, zeros + factors, zero_bytes, full);
}

// Sums of a consumer's slabs: in each, of rows g and g + 8 of weights by two rows of a, as
// mma.cuh has them.
using Sums = float[SLABS][kHalves][4];

// Adds the products of 16 rows of weights by step `step` of 16 columns of the rows of a.
__device__ __forceinline__ void add_products(float (&sums)[kHalves][4], const unsigned (&w)[4],
                                             const unsigned (&rows_a)[kHalves][2][4], int step) {
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    const unsigned(&own)[4] = rows_a[half][step / 2];
    mma_m16n8<dtype_t>(sums[half], w, own[step % 2 * 2], own[step % 2 * 2 + 1]);
  }
}

// Loads a lane's codes of slab `slab` of the tile in a block.
__device__ __forceinline__ void load_codes(Packed<16> (&vectors)[kVectors], unsigned stage,
                                           int block, int slab) {
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    vectors[v] = load_shared<16>(stage + block * kPartBytes + (slab * kVectors + v) * 512 +
                                 threadIdx.x % 32 * 16);
  }
}

// Adds the products of mxfp4's rows and 64 columns: of slabs `first_slab` and on of the tile. One
// branch for all of them lets their instructions mix.
template <bool kLarge>
__device__ __forceinline__ void multiply_powers(Sums& sums, unsigned stage, int block,
                                                int first_slab,
                                                const StagedPowers<kParts> (&powers)[SLABS],
                                                const unsigned (&rows_a)[kHalves][2][4]) {
#pragma unroll
  for (int i = 0; i < SLABS; ++i) {
    Packed<16> vectors[kVectors];
    load_codes(vectors, stage, block, first_slab + i);
    unsigned w[4][4];
    powers[i].template decode<kLarge>(w, vectors);
#pragma unroll
    for (int step = 0; step < 4; ++step) add_products(sums[i], w[step], rows_a, step);
  }
}

// Adds the products of 16 rows and 64 columns, whose groups begin with `group_at` in the stage.
// `slab` counts in the tile, and `slab_of_block` in the block.
__device__ __forceinline__ void multiply_slab(float (&sums)[kHalves][4], unsigned stage, int block,
                                              int slab, int slab_of_block,
                                              const int (&group_at)[kParts],
                                              const unsigned (&rows_a)[kHalves][2][4]) {
  Packed<16> vectors[kVectors];
  load_codes(vectors, stage, block, slab);
  constexpr int kSteps = SCALED / 16;  // of a part
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const StagedFactors<true> factors(stage + kScalesAt, stage + kZerosAt, group_at[part],
                                      slab_of_block);
    float part_sums[kHalves][4] = {};
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      unsigned w[4];
      decode_small_pairs<dtype_t>(w, codes_of(vectors, part * kSteps + i), factors.zero);
      add_products(part_sums, w, rows_a, part * kSteps + i);
    }
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[half][i] = fmaf(factors.scale[i / 2], separated(part_sums[half], i), sums[half][i]);
      }
    }
  }
}

// Multiplies the stages of the run, and leaves the sums of each tile to the finishers. Run by
// consumer `warp`.
template <typename Shape>
__device__ __forceinline__ void consume(const Shape& shape, int warp, Addresses at) {
  constexpr int kWarpsOfBlock = kTileSlabs / SLABS;
  const int lane_id = threadIdx.x % 32;
  const int first_slab = warp % kWarpsOfBlock * SLABS, warp_k = warp / kWarpsOfBlock;
  StageRing ring(at.stage_barriers());
  SumsRing results(at.sums_barriers());
  Run<Shape> run(shape);
#pragma unroll 1
  while (run.next()) {
    const int slabs_ahead = run.tile % kTilesOfBlock * kTileSlabs;  // of the block, before the tile
    Sums sums = {};
#pragma unroll 1
    for (int first = run.first; shape.reads && first < run.last; first += kStageBlocks) {
      const int count = ::min(kStageBlocks, run.last - first);
      const int first_group = shape.group_of(first * 64);
      ring.consumer_wait();
      const unsigned stage = at.stage(ring.stage());
      const unsigned columns_a = STAGED ? stage + kRowsAt - first * 128 : at.a(0, 0);
      const unsigned pitch_a = STAGED ? kStagedPitch : at.pitch_a;
#pragma unroll 1
      for (int block = warp_k; block < count; block += WARPS_K) {
        const int column = (first + block) * 64;
        unsigned rows_a[kHalves][2][4];
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int row = (half * 8 + lane_id % 8) % A_ROWS;
            ldmatrix_x4(rows_a[half][i],
                        columns_a + row * pitch_a + (column + i * 32 + lane_id / 8 * 8) * 2);
          }
        }
        int group_at[kParts];
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          group_at[part] = shape.group_of(column + part * SCALED) - first_group;
        }
        if constexpr (kExponents) {
          StagedPowers<kParts> powers[SLABS];
          bool are_large = false;
#pragma unroll
          for (int i = 0; i < SLABS; ++i) {
            powers[i] = {stage + kScalesAt, group_at, slabs_ahead + first_slab + i};
            are_large |= powers[i].are_large();
          }
          if (__any_sync(~0u, are_large)) {
            multiply_powers<true>(sums, stage, block, first_slab, powers, rows_a);
          } else {
            multiply_powers<false>(sums, stage, block, first_slab, powers, rows_a);
          }
        } else {
#pragma unroll
          for (int i = 0; i < SLABS; ++i) {
            const int slab = first_slab + i;
            multiply_slab(sums[i], stage, block, slab, slabs_ahead + slab, group_at, rows_a);
          }
        }
      }
      __syncwarp();
      ring.consumer_release(ring.stage());
      ring.advance();
    }
    results.producer_wait();
#pragma unroll
    for (int i = 0; i < SLABS; ++i) {
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        const float(&sum)[4] = sums[i][half];
        constexpr float kLower = sum_factor<dtype_t>(0), kUpper = sum_factor<dtype_t>(1);
        store_quad(at.sums(results.stage(), first_slab + i, warp_k, half),
                   {sum[0] * kLower, sum[1] * kLower, sum[2] * kUpper, sum[3] * kUpper});
      }
    }
    __syncwarp();
    if (lane_id == 0) mbarrier_arrive(results.full());
    results.advance();
  }
}

// The sums of a tile that runs share, in memory: each run has a place for its last tile.
struct Partials {
  float4* quads;
  int* flags;

  __device__ __forceinline__ float4& quad(int number, int slab, int half) const {
    return quads[((number * kTileSlabs + slab) * kHalves + half) * 32 + threadIdx.x % 32];
  }
  // Leaves this run's sums of a slab for the run that has the end of the tile.
  __device__ __forceinline__ void leave(int slab, const float (&sums)[kHalves][4]) const {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const float(&sum)[4] = sums[half];
      quad(blockIdx.x, slab, half) = {sum[0], sum[1], sum[2], sum[3]};
    }
    __threadfence();
    __syncwarp();
    if (threadIdx.x % 32 == 0) set_flag(flags + blockIdx.x * kTileSlabs + slab);
  }
  // Adds the sums of the runs ahead, back to the one with the beginning of the tile, and takes down
  // their flags.
  template <typename Shape>
  __device__ __forceinline__ void add(int slab, float (&sums)[kHalves][4], const Shape& shape,
                                      int tile_begin) const {
    int number = blockIdx.x;
#pragma unroll 1
    do {
      --number;
      int* const flag = flags + number * kTileSlabs + slab;
      wait_flag(flag);
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        const float4 part = __ldcg(&quad(number, slab, half));
        const float of_run[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[half][i] += of_run[i];
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) *flag = 0;
    } while (shape.begin_of(number) > tile_begin);
  }
};

// Calls `visit(half, i, row_a, column)` for each of this lane's sums of a slab that are elements of
// D: its place among the sums, and the row and the column of the element. `tile` counts ROWS rows
// of weights.
template <typename Visit>
__device__ __forceinline__ void each_element(int tile, int slab, const Visit& visit) {
  const int lane_id = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
#pragma unroll
    for (int i = 0; i < 4 / STACK;
         ++i) {  // with a gate, the upper rows are what the lower ones open
      const int row_of_slab = lane_id / 4 + i / 2 * 8;
      visit(half, i, half * 8 + lane_id % 4 * 2 + i % 2,
            (tile * ROWS + slab * 16) / STACK + row_of_slab);
    }
  }
}

// Finishes slab `slab` of the run's tiles. `target_of(tile)` has a tile's rows of D, `d` like
// FewRows, with its Addends, and the number of its ROWS rows of weights, `tile`.
template <typename Shape, typename TargetOf>
__device__ __forceinline__ void finish(const TargetOf& target_of, const Partials& partials,
                                       const Shape& shape, int slab, Addresses at) {
  using Addends = typename decltype(target_of(0))::Addends;
  SumsRing results(at.sums_barriers());
  Run<Shape> run(shape);
#pragma unroll 1
  while (run.next()) {
    const auto target = target_of(run.tile);
    Addends addends[kHalves][4] = {};
    if (run.ends_tile()) {
      each_element(target.tile, slab, [&](int half, int i, int row_a, int column) {
        addends[half][i] = target.d.addends(row_a, column);
      });
    }
    results.consumer_wait();
    float sums[kHalves][4] = {};
#pragma unroll
    for (int warp_k = 0; warp_k < WARPS_K; ++warp_k) {
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        const float4 part = load_quad(at.sums(results.stage(), slab, warp_k, half));
        const float of_warp[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[half][i] += of_warp[i];
      }
    }
    __syncwarp();
    results.consumer_release(results.stage());
    results.advance();
    if constexpr (SPLIT) {
      if (!run.ends_tile()) {
        partials.leave(slab, sums);
        continue;
      }
      if (!run.starts_tile()) partials.add(slab, sums, shape, run.tile * shape.tile_blocks());
    }
    each_element(target.tile, slab, [&](int half, int i, int row_a, int column) {
      target.d.store(row_a, column, sums[half][i], sums[half][i | 2], addends[half][i]);
    });
  }
}

}  // namespace kernwright
