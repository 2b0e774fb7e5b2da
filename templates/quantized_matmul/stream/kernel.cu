// D[m, n] = A[m, k] * W[n, k]^T for up to 32 rows of A (Hopper), where W are packed weights of 4 or
// 8 bits. Rows of A start at multiples of 16 bytes.
//
// Such a product costs as much as reading the weights. They are blocks of 64 rows x 64 columns, one
// after another, so the run of a thread block is contiguous if a tile has all rows of its blocks.
// The loader needs nothing that other kernels write, and may begin before they have ended
// (stream.cuh).

#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/matmul/few_rows.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/ptx/tma.cuh>
#include <kernwright/ptx/warp_roles.cuh>
#include <kernwright/quantized/stream.cuh>
#include <kernwright/tile/frame.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

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
    kernwright::load_weights(weights_, shape_, at_, b_, codes_, scales_, zeros_,
                             weights_.run.tile / kTilesOfBlock,
                             STAGED ? shape_.m * weights_.count * 128 : 0);
  }
  // Loads the columns of a of a stage. Rows behind m are left as they are: the sums of each row are
  // its own.
  __device__ __forceinline__ void load_rows() {
    const Cursor<Shape>& at = rows_;
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
  Cursor<Shape> weights_, rows_;
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

// The rows of D, and the number of a tile.
struct Target {
  using Addends = FewRows::Addends;
  const FewRows& d;
  int tile;
};

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
    finish([&](int tile) { return Target{target, tile}; }, {partials, flags}, shape,
           warp - WARPS - 1, at);
  }
}
