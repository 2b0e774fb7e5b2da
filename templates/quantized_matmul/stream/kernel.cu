// D[m, n] = A[m, k] * W[n, k]^T for up to 32 rows of A (Hopper), where W are packed weights of 4 or
// 8 bits. Rows of A start at multiples of 16 bytes.
//
// Such a product costs as much as reading the weights. They are blocks of 64 rows x 64 columns, one
// after another. Tiles are ROWS rows of them, and each thread block takes an equal run of tiles,
// which is contiguous if a tile has all rows of its blocks. A run may begin and end within a tile.
// The warps of a thread block have one of three jobs:
//
// loader     fills a ring by bulk copies and boxes: codes, with the scales and zero points of their
// groups.
//            It knows the run, so the ring never drains, and needs nothing that other kernels
//            write.
// consumers  turn codes to numbers and multiply them by A, which is in shared memory, or comes with
//            the stages (STAGED). Sums of a group are multiplied by its scale in fp32. A consumer
//            takes SLABS of a tile's slabs of 16 rows, and every WARPS_K-th block of a stage.
// finishers  add the sums of the consumers in the order of the warps, a slab each, and store a tile
//            of D, while the consumers go on.
//
// A run is taken from its last tile to its first. So a tile that ends in the next run is the first
// thing that is done, and its sums are in memory before the next run, which stores the tile, needs
// them: the run's first tile is its last one.

#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/matmul/few_rows.cuh>
#include <kernwright/ptx/flag.cuh>
#include <kernwright/ptx/ldmatrix.cuh>
#include <kernwright/ptx/mbarrier.cuh>
#include <kernwright/ptx/mma.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/ptx/tma.cuh>
#include <kernwright/ptx/warp_roles.cuh>
#include <kernwright/quantized/codes.cuh>
#include <kernwright/quantized/staged_factors.cuh>
#include <kernwright/tile/frame.cuh>
#include <kernwright/tile/pipeline.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

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
  static constexpr unsigned kA = (kBarriers + StageRing::kBytes + SumsRing::kBytes + 15) / 16 * 16;
  static_assert(kA + 1024 == FIXED_BYTES);

  unsigned base, pitch_a;  // of rows of a, in bytes
  __device__ unsigned stage(int i) const { return base + i * STAGE_BYTES; }
  __device__ unsigned a(int row, int column) const {
    return base + kA + row * pitch_a + column * 2;
  }
  // Returns the address of this lane's sums of a slab.
  __device__ unsigned sums(int buffer, int slab, int warp_k, int half) const {
    const int unit = ((buffer * kTileSlabs + slab) * WARPS_K + warp_k) * kHalves + half;
    return base + kSums + unit * 512 + threadIdx.x % 32 * 16;
  }
  __device__ unsigned stage_barriers() const { return base + kBarriers; }
  __device__ unsigned sums_barriers() const { return stage_barriers() + StageRing::kBytes; }
};

// The parts of the product that are the same in every tile.
struct Shape {
  int m, k, groups, pieces;
  bool reads;  // else all sums are 0

  __device__ int tile_blocks() const { return (k + 63) / 64; }
  // Returns the first block of weights in the run of thread block `number`.
  __device__ int begin_of(int number) const {
    const auto piece = static_cast<int>(static_cast<long long>(number) * pieces / gridDim.x);
    return SPLIT ? piece : piece * tile_blocks();
  }
  __device__ int group_of(int column) const { return kernwright::group_of(column, groups); }
};

// The tiles of this thread block's run, from the last one to the first: block columns first to
// last - 1 of each.
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
struct Cursor {
  __device__ Cursor(const Shape& shape, Addresses at) : run(shape), ring(at.stage_barriers()) {}

  Run run;
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

// Fills the stages of the run. Run by a whole warp, whose lanes share the copies.
class Loader {
 public:
  __device__ Loader(const dtype_t* a, const unsigned char* b, const TensorMap& codes,
                    const scale_t* scales, const unsigned char* zeros, int lda, const Shape& shape,
                    Addresses at)
      : a_(a),
        b_(b),
        codes_(codes),
        scales_(scales),
        zeros_(zeros),
        lda_(lda),
        shape_(shape),
        at_(at),
        weights_(shape, at),
        rows_(shape, at) {}

  // Loads the weights of up to `stages` stages.
  __device__ __forceinline__ void load_ahead(int stages) {
    if (!shape_.reads) return;
#pragma unroll 1
    for (; ahead_ < stages && weights_.next(); ++ahead_) load_weights();
  }
  // Loads all that is left, with the rows of a if they come with the stages.
  __device__ __forceinline__ void load_rest() {
    if (!shape_.reads) return;
    if constexpr (STAGED) {
#pragma unroll 1
      for (; ahead_ > 0 && rows_.next(); --ahead_) load_rows();
    }
#pragma unroll 1
    while (weights_.next()) {
      load_weights();
      if (STAGED && rows_.next()) load_rows();
    }
  }

 private:
  __device__ __forceinline__ void load_weights() {
    const Cursor& at = weights_;
    const int first_group = shape_.group_of(at.column * 64);
    const int groups = shape_.group_of((at.column + at.count) * 64 - 1) - first_group + 1;
    const long long row = at.run.tile / kTilesOfBlock;  // of blocks
    const long long factors = (row * shape_.groups + first_group) * 64;
    const unsigned scale_bytes = groups * 64 * sizeof(scale_t), zero_bytes = groups * 64;
    const unsigned to = at_.stage(at.ring.stage()), full = at.ring.full();
    const int lane_id = threadIdx.x % 32;
    at.ring.warp_acquire(at.count * kPartBytes + scale_bytes + (kZeros ? zero_bytes : 0) +
                         (STAGED ? shape_.m * at.count * 128 : 0));
    const unsigned char* const codes = b_ + (row * shape_.tile_blocks() + at.column) * kBlockBytes +
                                       at.run.tile % kTilesOfBlock * kPartBytes;
    if (kTilesOfBlock == 1) {
      if (lane_id == 0) bulk_load_once(to, codes, at.count * kPartBytes, full);
    } else if (at.count == kStageBlocks) {
      // A copy for each block would take longer than the memory.
      if (lane_id == 0) {
        tma_load_once(to, codes_,
                      {0, 0, at.run.tile % kTilesOfBlock, at.column, static_cast<int>(row)}, full);
      }
    } else if (lane_id < at.count) {
      bulk_load_once(to + lane_id * kPartBytes, codes + lane_id * kBlockBytes, kPartBytes, full);
    }
    if (lane_id == 30) bulk_load_once(to + kScalesAt, scales_ + factors, scale_bytes, full);
    if (kZeros && lane_id == 31) bulk_load_once(to + kZerosAt, zeros_ + factors, zero_bytes, full);
  }
  // Loads the columns of a of a stage. Rows behind m are left as they are: the sums of each row are
  // its own.
  __device__ __forceinline__ void load_rows() {
    const Cursor& at = rows_;
    const unsigned to = at_.stage(at.ring.stage()) + kRowsAt;
    if (const int row = threadIdx.x % 32; row < shape_.m) {
      bulk_load(to + row * kStagedPitch, a_ + static_cast<long long>(row) * lda_ + at.column * 64,
                at.count * 128, at.ring.full());
    }
  }

  const dtype_t* a_;
  const unsigned char* b_;
  const TensorMap& codes_;
  const scale_t* scales_;
  const unsigned char* zeros_;
  int lda_;
  Shape shape_;
  Addresses at_;
  Cursor weights_, rows_;
  int ahead_ = 0;  // stages whose rows are not loaded yet
};

// Copies the columns of a that the run meets to shared memory, with zeros behind k and m. Run by
// all consumers.
__device__ __forceinline__ void copy_a(const dtype_t* a, int lda, const Shape& shape,
                                       Addresses at) {
  constexpr int kAtOnce = 4;
  const int begin = shape.begin_of(blockIdx.x), end = shape.begin_of(blockIdx.x + 1);
  const int row_pieces = shape.tile_blocks() * 8;  // of 8 columns
  const int start = begin % shape.tile_blocks() * 8;
  const int pieces = ::min((end - begin) * 8, row_pieces);
#pragma unroll 1
  for (int first = threadIdx.x; first < A_ROWS * pieces; first += kAtOnce * 32 * WARPS) {
    Packed<16> x[kAtOnce];
    unsigned to[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int task = first + i * 32 * WARPS, row = task / pieces;
      const int piece = start + task % pieces;
      const int column = (piece < row_pieces ? piece : piece - row_pieces) * 8;
      x[i] = {};
      to[i] = at.a(row, column);
      if (row < shape.m && column < shape.k) {
        x[i] = load<Load::read_only, 16>(a + static_cast<long long>(row) * lda + column);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i * 32 * WARPS < A_ROWS * pieces) store_shared(to[i], x[i]);
    }
  }
  named_barrier_sync(2, 32 * WARPS);
}

// Sums of a consumer's slabs: in each, of rows g and g + 8 of weights by two rows of a, as
// mma.cuh has them.
using Sums = float[SLABS][kHalves][4];

// Adds the products of 16 rows and 64 columns, whose groups begin with `group_at` in the stage.
// `slab` counts in the tile, and `slab_of_block` in the block.
__device__ __forceinline__ void multiply_slab(float (&sums)[kHalves][4], unsigned stage, int block,
                                              int slab, int slab_of_block,
                                              const int (&group_at)[kParts],
                                              const unsigned (&rows_a)[kHalves][2][4]) {
  Packed<16> vectors[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    vectors[v] = load_shared<16>(stage + block * kPartBytes + (slab * kVectors + v) * 512 +
                                 threadIdx.x % 32 * 16);
  }
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const StagedFactors<true> factors(stage + kScalesAt, stage + kZerosAt, group_at[part],
                                      slab_of_block);
    float part_sums[kHalves][4] = {};
#pragma unroll
    for (int in_part = 0; in_part < SCALED / 16; ++in_part) {
      const int step = part * (SCALED / 16) + in_part;
      unsigned w[4];
      decode_small_pairs<dtype_t>(w, codes_of(vectors, step), factors.zero);
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        const unsigned(&own)[4] = rows_a[half][step / 2];
        mma_m16n8<dtype_t>(part_sums[half], w, own[step % 2 * 2], own[step % 2 * 2 + 1]);
      }
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

__device__ __forceinline__ void consume(const Shape& shape, int warp, Addresses at) {
  constexpr int kWarpsOfBlock = kTileSlabs / SLABS;
  const int lane_id = threadIdx.x % 32;
  const int first_slab = warp % kWarpsOfBlock * SLABS, warp_k = warp / kWarpsOfBlock;
  StageRing ring(at.stage_barriers());
  SumsRing results(at.sums_barriers());
  Run run(shape);
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
#pragma unroll
        for (int i = 0; i < SLABS; ++i) {
          const int slab = first_slab + i;
          multiply_slab(sums[i], stage, block, slab, slabs_ahead + slab, group_at, rows_a);
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
// D: its place among the sums, and the row and the column of the element.
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

__device__ __forceinline__ void finish(const FewRows& d, const Partials& partials,
                                       const Shape& shape, int slab, Addresses at) {
  SumsRing results(at.sums_barriers());
  Run run(shape);
#pragma unroll 1
  while (run.next()) {
    FewRows::Addends addends[kHalves][4] = {};
    if (run.ends_tile()) {
      each_element(run.tile, slab, [&](int half, int i, int row_a, int column) {
        addends[half][i] = d.addends(row_a, column);
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
    each_element(run.tile, slab, [&](int half, int i, int row_a, int column) {
      d.store(row_a, column, sums[half][i], sums[half][i | 2], addends[half][i]);
    });
  }
}

}  // namespace

// Computes the product with a loader, consumers and finishers in each block.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    quantized_matmul_stream(KW_PARAMETERS(quantized_matmul_stream)) {
  extern __shared__ unsigned char memory[];
  release_next_kernel();
  const Addresses at{aligned_shared(memory), (k + 63) / 64 * 64 * 2u + 16};
  const Shape shape{m, k, groups, pieces, reads_operands(alpha)};
  const int warp = warp_number();
  const bool is_loader = warp == WARPS;
  Loader loader(a, b, map_codes, b_scale, b_zero, lda, shape, at);
  if (is_loader) {
    if (elect_one()) {
      if constexpr (kTilesOfBlock > 1) tma_prefetch(map_codes);
      StageRing(at.stage_barriers()).init(WARPS);
      SumsRing(at.sums_barriers()).init(kFinishers, WARPS);
      mbarrier_init_fence();
    }
    __syncwarp();
    // The other warps reach the wait after these requests, which they would delay there.
    loader.load_ahead(ahead);
    named_barrier_arrive(1, THREADS);
  } else {
    named_barrier_sync(1, THREADS);
  }
  await_previous_kernel();
  if (is_loader) {
    loader.load_rest();
  } else if (warp < WARPS) {
    if constexpr (!STAGED) copy_a(a, lda, shape, at);
    consume(shape, warp, at);
  } else {
    const FewRows target(d, alpha, bias, beta, residual, m, n, ldd, d_k, d_v);
    finish(target, {partials, flags}, shape, warp - WARPS - 1, at);
  }
}
