// D[m, n] = A[m, k] * B[n, k]^T, row-major, 16-bit operands, accumulated in fp32, for up to 16 rows
// of A (Hopper and newer). Rows of A, B and D begin lda, ldb and ldd elements apart; rows of A and
// B start at multiples of 16 bytes.
//
// Such a product costs as much as reading B. A block takes tiles of ROWS rows of B, one after
// another, and a stage of its ring holds CHUNK columns of a tile's rows. The warps of a block have
// one of three jobs:
//
// loader     fills the ring by TMA. It knows all tiles ahead, so the ring never drains between
//            tiles. In a launch that reads ahead it fills stages before the previous kernel has
//            ended.
// consumers  multiply a slice of each stage's columns. A consumer only meets the same columns of A
//            again and again, so it keeps these in shared memory, and no barrier of the block is
//            needed.
// finisher   adds the sums of the consumers in the order of the warps and stores a tile of D, while
//            the consumers go on with the next one.
//
// mma.sync takes 16 rows of B by 8 of A. It expects other columns in a lane than the 8 consecutive
// ones that a lane reads at once, but A and B are permuted alike, so the sums are the same.
//
// With norm=rms the consumers multiply A by the weight as they read it, and sum its squares. The
// root of a row is a factor of the finished sums.

#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/matmul/few_rows.cuh>
#include <kernwright/ptx/mbarrier.cuh>
#include <kernwright/ptx/mma.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/ptx/tma.cuh>
#include <kernwright/ptx/warp_roles.cuh>
#include <kernwright/tile/frame.cuh>
#include <kernwright/tile/pipeline.cuh>
#include <kernwright/tile/swizzle.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

constexpr bool kNorm = config::norm == config::norm_rms;
constexpr int kPiece = 8;                          // columns in 16 bytes
constexpr int kBoxK = 64;                          // columns in the 128 bytes of a box's rows
constexpr int kSlice = CHUNK / WARPS;              // columns of a stage that a consumer takes
constexpr int kRowsB = ROWS * STACK;               // of a stage
constexpr int kBoxBytes = kRowsB * kSwizzleBytes;  // with a gate, of the boxes of both halves
constexpr int kGroups = kRowsB / 8;                // of 8 rows of b
constexpr int kPairs = (kGroups + 1) / 2;          // of groups, each of which one product takes
constexpr int kHalves = BM / 8;                    // of the rows of a
constexpr int kUnits = kPairs * kHalves;           // of 16 x 8 sums
// Products that follow each other add to different accumulators, so that none waits for the one
// before.
constexpr int kChains = kUnits >= 4 ? 1 : 4 / kUnits;
constexpr int kSumsAtOnce =
    kUnits >= 8 ? 1 : 8 / kUnits;  // consumers whose sums are loaded at once
constexpr int kUnroll = kPairs == 1 ? 2 : kPairs >= 4 ? 1 : 4 / kPairs;
constexpr int kLanesOfRow = 32 / A_ROWS;  // that copy a row of a, PIECES pieces each
constexpr int kAtOnce =
    PIECES < (kNorm ? 3 : 8) ? PIECES : (kNorm ? 3 : 8);  // that it copies at once
static_assert(kSlice % kBoxK == 0 && CHUNK / kBoxK * kBoxBytes == STAGE_BYTES);
static_assert(kUnits * WARPS * 2 * 512 == SUMS_BYTES);

using StageRing = Pipeline<STAGES>;
using SumsRing = Pipeline<2>;

// 32-bit addresses in shared memory. `base` is a multiple of 1024, which the swizzle needs.
struct Addresses {
  static constexpr unsigned kSums = STAGES * STAGE_BYTES;
  static constexpr unsigned kSquares = kSums + SUMS_BYTES;
  static constexpr unsigned kBarriers = kSquares + WARPS * 32 * 4;
  static constexpr unsigned kA =
      (kBarriers + StageRing::kBytes + SumsRing::kBytes + 8 + 15) / 16 * 16;
  static_assert(kA + 1024 == FIXED_BYTES);

  unsigned base, pitch_a;  // of rows of a, in bytes
  // Returns the address of the 64 columns from `column` on, a multiple of 64, of a stage's rows.
  __device__ unsigned b(int stage, int column) const {
    return base + stage * STAGE_BYTES + column / kBoxK * kBoxBytes;
  }
  __device__ unsigned a(int row, int column) const {
    return base + kA + row * pitch_a + column * 2;
  }
  __device__ int columns_a() const { return static_cast<int>(pitch_a / 2) - kPiece; }
  // Returns the address of this lane's sums of a unit.
  __device__ unsigned sums(int buffer, int warp, int unit) const {
    return base + kSums + ((buffer * WARPS + warp) * kUnits + unit) * 512 + threadIdx.x % 32 * 16;
  }
  // Returns the address of the sum of the squares that this lane copied in a consumer.
  __device__ unsigned squares(int warp) const {
    return base + kSquares + (warp * 32 + threadIdx.x % 32) * 4;
  }
  __device__ unsigned stage_barriers() const { return base + kBarriers; }
  __device__ unsigned sums_barriers() const { return stage_barriers() + StageRing::kBytes; }
  // Completes when every consumer has written its partial sums of squares.
  __device__ unsigned squared() const { return sums_barriers() + SumsRing::kBytes; }
};

// The parts of the product that are the same in every tile.
struct Shape {
  int m, n, k;  // k is 0 if the operands are not read
  __device__ int tiles() const { return (n + ROWS - 1) / ROWS; }
  // Returns the number of stages of all tiles of this block.
  __device__ int stages() const {
    const int blocks = gridDim.x, block = blockIdx.x;
    return (tiles() - block + blocks - 1) / blocks * ((k + CHUNK - 1) / CHUNK);
  }
};

// Fills the stages of this block's tiles in their order. Run by one thread.
class Loader {
 public:
  __device__ Loader(const TensorMap& map, const Shape& shape, Addresses at)
      : map_(map), shape_(shape), at_(at), ring_(at.stage_barriers()) {}

  // Fills up to `stages` more. Columns behind k are filled with zeros.
  __device__ __forceinline__ void fill(int stages) {
#pragma unroll 1
    for (; stages > 0 && tile_ < shape_.tiles() && shape_.k > 0; --stages) {
      ring_.producer_acquire(STAGE_BYTES);
#pragma unroll 16
      for (int column = 0; column < CHUNK; column += kBoxK) {
#pragma unroll
        for (int half = 0; half < STACK; ++half) {
          tma_load_once(at_.b(ring_.stage(), column) + half * ROWS * kSwizzleBytes, map_,
                        first_ + column, half * shape_.n + tile_ * ROWS, ring_.full());
        }
      }
      ring_.advance();
      first_ += CHUNK;
      if (first_ >= shape_.k) {
        first_ = 0;
        tile_ += gridDim.x;
      }
    }
  }

 private:
  const TensorMap& map_;
  Shape shape_;
  Addresses at_;
  StageRing ring_;
  int tile_ = blockIdx.x, first_ = 0;  // the next stage: its tile and first column
};

// A consumer's columns of a, with zeros behind k. kLanesOfRow lanes copy a row's pieces in turn.
class Activations {
 public:
  __device__ Activations(const dtype_t* a, const dtype_t* weight, int lda, const Shape& shape,
                         int warp)
      : a_(a), weight_(weight), shape_(shape), lda_(lda), warp_(warp) {}

  // Loads the first weights.
  __device__ __forceinline__ void load_first_weights() { load_weights(0); }

  // Copies the columns to shared memory, multiplied by their weights, and leaves the sums of their
  // squares there.
  __device__ __forceinline__ void copy(Addresses at, bool has_first_weights) {
    const int row = threadIdx.x % 32 / kLanesOfRow;
    const dtype_t* const from = a_ + static_cast<long long>(row) * lda_;
    float squares = 0;
#pragma unroll 1
    for (int first = 0; first < PIECES; first += kAtOnce) {
      Packed<16> x[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int column = column_of(first + i);
        x[i] = {};
        if (column < shape_.k && row < shape_.m) x[i] = load<Load::read_only, 16>(from + column);
      }
      if constexpr (kNorm) {
        if (first > 0 || !has_first_weights) load_weights(first);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if constexpr (kNorm) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const float2 pair = unpack_pair<dtype_t>(x[i].word[j]);
            squares += pair.x * pair.x + pair.y * pair.y;
            x[i].word[j] = multiply_words<dtype_t>(x[i].word[j], weights_[i].word[j]);
          }
        }
        const int column = column_of(first + i);
        if (column < at.columns_a()) store_shared(at.a(row, column), x[i]);
      }
    }
    if constexpr (kNorm) store_number(at.squares(warp_), __float_as_int(squares));
    __syncwarp();
    if (kNorm && threadIdx.x % 32 == 0) mbarrier_arrive(at.squared());
  }

 private:
  // Returns the first column of the lane's piece `i`.
  __device__ __forceinline__ int column_of(int i) const {
    constexpr int kPieces = kSlice / kPiece;  // of a chunk
    const int piece = i * kLanesOfRow + threadIdx.x % kLanesOfRow;
    return piece / kPieces * CHUNK + warp_ * kSlice + piece % kPieces * kPiece;
  }
  __device__ __forceinline__ void load_weights(int first) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int column = column_of(first + i);
      weights_[i] = {};
      if (column < shape_.k) weights_[i] = load<Load::read_only, 16>(weight_ + column);
    }
  }

  const dtype_t* a_;
  const dtype_t* weight_;
  Shape shape_;
  int lda_, warp_;
  Packed<16> weights_[kAtOnce];
};

// Sums of 16 rows of b by 8 of a: rows lane / 4 of the lower and of the upper 8, and rows
// 2 * (lane % 4) and the one after it of a.
using Acc = float[kChains][kUnits][4];

// Adds the products of a consumer's slice of a stage, which begins at `slice` in the stage and at
// `first` in a. A lane reads 16 consecutive columns of a row's 64, 8 at once, so that lanes of two
// rows read from all banks.
__device__ __forceinline__ void multiply(Acc& acc, int stage, int slice, int first, Addresses at) {
  const int lane = threadIdx.x % 32, row = lane / 4, piece = lane % 4 * 2;
#pragma unroll kUnroll
  for (int step = 0; step < kSlice / (kBoxK / 2); ++step) {
    const int box = step / 2 * kBoxK, part = step % 2;
    const unsigned from =
        at.b(stage, slice + box) + row * kSwizzleBytes + swizzled_group(row, piece + part);
    Packed<16> a[kHalves];
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      a[half] =
          load_shared<16>(at.a((half * 8 + row) % A_ROWS, first + box + (piece + part) * kPiece));
    }
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      const auto lower = load_shared<16>(from + pair * 8 * kSwizzleBytes);
      Packed<16> upper{};
      if (kPairs + pair < kGroups) {
        upper = load_shared<16>(from + (kPairs + pair) * 8 * kSwizzleBytes);
      }
#pragma unroll
      for (int word = 0; word < 4; word += 2) {
        const unsigned b[4] = {lower.word[word], upper.word[word], lower.word[word + 1],
                               upper.word[word + 1]};
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
          mma_m16n8<dtype_t>(acc[(step * 2 + word / 2) % kChains][pair * kHalves + half], b,
                             a[half].word[word], a[half].word[word + 1]);
        }
      }
    }
  }
}

__device__ __forceinline__ void consume(const Shape& shape, int warp, Addresses at) {
  StageRing ring(at.stage_barriers());
  SumsRing results(at.sums_barriers());
  int refilled = shape.stages() - STAGES;  // stages that are filled again after this
#pragma unroll 1
  for (int tile = blockIdx.x; tile < shape.tiles(); tile += gridDim.x) {
    Acc acc = {};
#pragma unroll 1
    for (int first = 0; first < shape.k; first += CHUNK) {
      ring.consumer_wait();
      multiply(acc, ring.stage(), warp * kSlice, first + warp * kSlice, at);
      if (refilled-- > 0) {
        tma_store_fence();
        __syncwarp();
        ring.consumer_release(ring.stage());
      }
      ring.advance();
    }
    results.producer_wait();
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      float(&sum)[4] = acc[0][unit];
#pragma unroll
      for (int chain = 1; chain < kChains; ++chain) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i] += acc[chain][unit][i];
      }
      store_quad(at.sums(results.stage(), warp, unit), {sum[0], sum[1], sum[2], sum[3]});
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(results.full());
    results.advance();
  }
}

// The factors of finished sums, for the rows of a that this lane stores.
struct RowFactors {
  float of[kHalves][2];

  __device__ RowFactors(const Shape& shape, float eps, Addresses at) {
    if constexpr (kNorm) {
      mbarrier_wait(at.squared(), 0);
      float square = 0;
#pragma unroll
      for (int warp = 0; warp < WARPS; ++warp) {
        square += __int_as_float(load_number(at.squares(warp)));
      }
#pragma unroll
      for (int apart = kLanesOfRow / 2; apart > 0; apart /= 2) {
        square += __shfl_xor_sync(~0u, square, apart);
      }
      const float mean = __fdividef(square, static_cast<float>(shape.k));
      const float factor = shape.k == 0 ? 1 : rsqrtf(mean + eps);
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int row = (half * 8 + threadIdx.x % 4 * 2 + i) % A_ROWS;
          of[half][i] = __shfl_sync(~0u, factor, row * kLanesOfRow);
        }
      }
    }
  }
  __device__ float scaled(float x, int half, int i) const { return kNorm ? x * of[half][i] : x; }
};

// Calls `visit(unit, i, row_a, column)` for each of this lane's sums that are elements of D: its
// unit, its place in the unit, and the row and the column of the element, whose tile begins at
// `first`.
template <typename Visit>
__device__ __forceinline__ void each_element(int first, const Visit& visit) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit) {
    const int pair = unit / kHalves, half = unit % kHalves;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int group = i / 2 * kPairs + pair;  // of the tile
      if (group >= ROWS / 8) continue;
      visit(unit, i, half * 8 + lane % 4 * 2 + i % 2, first + group * 8 + lane / 4);
    }
  }
}

__device__ __forceinline__ void finish(const FewRows& d, const Shape& shape, float eps,
                                       Addresses at) {
  SumsRing results(at.sums_barriers());
  const RowFactors factors(shape, eps, at);
#pragma unroll 1
  for (int tile = blockIdx.x; tile < shape.tiles(); tile += gridDim.x) {
    FewRows::Addends addends[kUnits][4];
    each_element(tile * ROWS, [&](int unit, int i, int row_a, int column) {
      addends[unit][i] = d.addends(row_a, column);
    });
    results.consumer_wait();
    float acc[kUnits][4] = {};
#pragma unroll kSumsAtOnce
    for (int warp = 0; warp < WARPS; ++warp) {
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        const float4 part = load_quad(at.sums(results.stage(), warp, unit));
        const float of_warp[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[unit][i] += of_warp[i];
      }
    }
    __syncwarp();
    results.consumer_release(results.stage());
    results.advance();
    each_element(tile * ROWS, [&](int unit, int i, int row_a, int column) {
      const int half = unit % kHalves;
      d.store(row_a, column, factors.scaled(acc[unit][i], half, i % 2),
              factors.scaled(acc[unit][i | 2], half, i % 2), addends[unit][i]);
    });
  }
}

}  // namespace

// Computes the product with a loader, consumers and a finisher in each block. ROOM bounds the
// registers so that blocks of the kernels before and after this one find room too.
extern "C" __global__ void __launch_bounds__(THREADS, ROOM)
    matmul_stream(KW_PARAMETERS(matmul_stream)) {
  extern __shared__ unsigned char memory[];
  release_next_kernel();
  const Addresses at{aligned_shared(memory), (k + CHUNK - 1) / CHUNK * CHUNK * 2u + 16};
  const Shape shape{m, n, reads_operands(alpha) ? k : 0};
  const int warp = warp_number();
  const bool is_loader = warp == WARPS, is_consumer = warp < WARPS, reads_ahead = ahead > 0;
  Loader loader(map_b, shape, at);
  Activations activations(a, norm_weight, lda, shape, warp);
  if (is_loader) {
    if (elect_one()) {
      tma_prefetch(map_b);
      StageRing(at.stage_barriers()).init(WARPS);
      SumsRing(at.sums_barriers()).init(1, WARPS);
      mbarrier_init(at.squared(), WARPS);
      mbarrier_init_fence();
    }
    __syncwarp();
    // The other warps reach the wait after these requests, which they would delay there.
    if (elect_one()) loader.fill(ahead);
    __syncwarp();
    named_barrier_arrive(1, THREADS);
  } else {
    if (kNorm && is_consumer && reads_ahead) activations.load_first_weights();
    named_barrier_sync(1, THREADS);
  }
  await_previous_kernel();
  if (is_loader) {
    if (elect_one()) loader.fill(INT_MAX);
  } else if (is_consumer) {
    activations.copy(at, reads_ahead);
    consume(shape, warp, at);
  } else {
    const FewRows target(d, alpha, bias, beta, residual, m, n, ldd, d_k, d_v);
    finish(target, shape, eps, at);
  }
}
