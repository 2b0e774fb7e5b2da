#pragma once
// The product of a tile of a with a tile of quantized weights by a whole block, on mma.sync: BM
// rows of a and BN rows of weights. Weights are the rows of mma.sync and rows of a its columns,
// since packed weights are its A fragments.
//
//   multiply_tile()   fills the ring of STAGES stages by cp.async, and adds all products in
//                     registers; afterwards the memory of the ring is free
//   stage_sums()      writes the sums to shared memory, by rows of d, before a barrier of the block

#include <kernwright/config.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/cp_async.cuh>
#include <kernwright/ptx/ldmatrix.cuh>
#include <kernwright/ptx/mma.cuh>
#include <kernwright/quantized/codes.cuh>
#include <kernwright/quantized/mxfp4_word.cuh>

namespace kernwright {

using namespace config;

constexpr int kBoxes = BK / 64;    // blocks of weights along k in a stage
constexpr int kMmaM = WM / 8;      // of 8 rows of a, which mma.sync takes for columns
constexpr int kMmaN = WN / 16;     // of 16 rows of weights
constexpr int kRowBytes = BK * 2;  // a row of a in a stage
constexpr int kCodesAt = BM * kRowBytes;
constexpr int kStageCount = static_cast<int>(ceil_div(k, BK));
constexpr int kBlocks = static_cast<int>(ceil_div(k, 64));  // of weights along k
constexpr int kK = static_cast<int>(k), kN = static_cast<int>(n);
// Floats from one staged row of the result to the next: 16 bytes of padding.
constexpr int kStoreStride = BN + 4;
constexpr int kRowBlocks = static_cast<int>(STACK == 1 ? ceil_div(n, 64) : ceil_div(n, 32));
constexpr bool kPerStage = UNIT == BK;  // all columns of a stage have the same scales
constexpr bool kInHalves = UNIT == 8;   // each 8 columns of a step have scales of their own

// Returns the place of 16-byte chunk `chunk` in row `row` of a, as in matmul/tiled.
__device__ __forceinline__ int swizzle(int row, int chunk) { return chunk ^ row % 8; }

// Returns the row of weights at row `place` of a tile whose first column of d is `column`, or -1.
// With a gate 8 gates and their ups follow each other, as in packed weights.
__device__ __forceinline__ int row_at(int column, int place) {
  const int in_d = column + (STACK == 1 ? place : place / 16 * 8 + place % 8);
  if (in_d >= kN) return -1;
  return STACK == 1 ? in_d : in_d + place / 8 % 2 * kN;
}

// Copies the rows of a, of which `offset_of(row)` is the place of the first element in a, or -1.
// Vectors that do not exist become zeros. It is no pointer, since compilers take a null pointer
// with an offset for an address.
template <typename OffsetOf>
__device__ __forceinline__ void copy_a(unsigned to, const dtype_t* a, int k_first,
                                       const OffsetOf& offset_of) {
  constexpr int kPieces = BK / 8;
#pragma unroll
  for (int i = 0; i < BM * kPieces; i += THREADS) {
    const int row = (i + static_cast<int>(threadIdx.x)) / kPieces;
    const int piece = (i + static_cast<int>(threadIdx.x)) % kPieces;
    if (BM * kPieces % THREADS != 0 && row >= BM) break;
    const long long offset = offset_of(row);
    const bool exists = offset >= 0 && k_first + piece * 8 < kK;
    cp_async<16>(to + row * kRowBytes + swizzle(row, piece) * 16,
                 a + (exists ? offset + k_first + piece * 8 : 0), exists ? 16 : 0);
  }
}

// Copies the codes of a stage, and zeros behind the last columns: what is left in shared memory may
// be NaN.
__device__ __forceinline__ void copy_codes(unsigned to, const unsigned char* b, int tile,
                                           int k_first) {
  if constexpr (kPackedLayout) {
    constexpr int kPieces = kBoxes * kBlockBytes / 16;  // of a row of blocks
#pragma unroll
    for (int i = 0; i < BN / 64 * kPieces; i += THREADS) {
      const int at = i + static_cast<int>(threadIdx.x);
      const int row = tile * (BN / 64) + at / kPieces, block = k_first / 64;
      const int piece = at % kPieces;
      if (BN / 64 * kPieces % THREADS != 0 && at >= BN / 64 * kPieces) break;
      const bool exists = row < kRowBlocks && block + piece / (kBlockBytes / 16) < kBlocks;
      const unsigned char* const from =
          b + (static_cast<long long>(row) * kBlocks + block) * kBlockBytes + piece * 16;
      cp_async<16>(to + at * 16, exists ? from : b, exists ? 16 : 0);
    }
  } else {
    constexpr int kBytes = kK * kCodeBits / 8 % 16 == 0 ? 16 : kCodeBits;
    constexpr int kPieces = BK * kCodeBits / 8 / kBytes;  // of a row
#pragma unroll 4
    for (int at = threadIdx.x; at < BN * kPieces; at += THREADS) {
      const int place = at / kPieces, piece = at % kPieces;
      const int row = row_at(tile * COLUMNS, place);
      const bool exists = row >= 0 && k_first + piece * kBytes * 8 / kCodeBits < kK;
      const unsigned char* const from = b + static_cast<long long>(row) * (kK * kCodeBits / 8) +
                                        k_first * kCodeBits / 8 + piece * kBytes;
      cp_async<kBytes>(to + place * PITCH_B + piece * kBytes, exists ? from : b,
                       exists ? kBytes : 0);
    }
  }
}

// The scales and zero points of rows g and g + 8 of 16, of which codes become numbers.
struct Factors {
  float scale[2];
  unsigned zero[2];
};

// The scales and zero points of a warp's rows.
class FactorTable {
 public:
  __device__ __forceinline__ FactorTable(const scale_t* scales, const unsigned char* zeros,
                                         int tile, int first_row)
      : scales_(scales), zeros_(zeros), tile_(tile), first_row_(first_row) {}

  // Returns the factors of group of 16 rows `i` for a column. Columns behind the last take the
  // last one's, and rows behind the last the first one's, since their results are not stored.
  __device__ __forceinline__ Factors at(int i, int column) const {
    const int number = GROUPS == 1 ? 0
                                   : ::min(static_cast<int>((column + BEFORE) / group),
                                           static_cast<int>(GROUPS) - 1);
    const int in_tile = first_row_ + i * 16;
    Factors factors;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int in_warp = static_cast<int>(threadIdx.x) % 32 / 4;
      long long place;
      if constexpr (kPackedLayout) {
        const int row = tile_ * (BN / 64) + in_tile / 64;
        place = (static_cast<long long>(row < kRowBlocks ? row : 0) * GROUPS + number) * 64 +
                in_tile % 64 + in_warp * 2 + half;
      } else {
        const int row = row_at(tile_ * COLUMNS, in_tile + in_warp + half * 8);
        place = static_cast<long long>(::max(row, 0)) * GROUPS + number;
      }
      factors.scale[half] = scale_value(scales_[place]);
      factors.zero[half] = zero_word<dtype_t>(kZeros ? __ldg(zeros_ + place) : kNoZero);
    }
    return factors;
  }

 private:
  const scale_t* __restrict__ scales_;
  const unsigned char* __restrict__ zeros_;
  int tile_, first_row_;
};

// Returns the lane's codes of 16 rows of weights, from row `row` of the tile on, in step `step` of
// 16 columns of a stage that is not packed.
__device__ __forceinline__ Packed<kCodeBits> gather(unsigned codes, int row, int step) {
  const int lane_id = threadIdx.x % 32;
  Packed<kCodeBits> gathered{};
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    const unsigned from = codes + (row + lane_id / 4 + pair % 2 * 8) * PITCH_B;
    const int column = step * 16 + pair / 2 * 8 + lane_id % 4 * 2;
    if constexpr (kCodeBits == 4) {
      const unsigned two = load_shared<2>(from + column / 4 * 2).word[0] >> column / 2 % 2 * 8;
      gathered.word[0] |= ((two & 15) | (two & 0xf0) << 12) << 4 * pair;
    } else {
      gathered.word[pair / 2] |= load_shared<2>(from + column).word[0] << 16 * (pair % 2);
    }
  }
  if constexpr (kExponents) gathered.word[0] = packed_mxfp4(gathered.word[0]);
  return gathered;
}

// Turns codes to the weights of an A fragment, each rounded once. `upper` has the factors of the
// second 8 columns.
__device__ __forceinline__ void make_weights(unsigned (&w)[4], const Packed<kCodeBits>& codes,
                                             const Factors& lower, const Factors& upper) {
  decode_pairs<dtype_t>(w, codes, lower.zero);
  if constexpr (kInHalves && kZeros) {
    unsigned second[4];
    decode_pairs<dtype_t>(second, codes, upper.zero);
    w[2] = second[2];
    w[3] = second[3];
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    w[j] = scale_pair<dtype_t>(w[j], (j < 2 ? lower : upper).scale[j % 2]);
  }
}

// The sums of a thread: of rows g and g + 8 of each 16 rows of weights by two rows of each eight of
// a, as mma.cuh has them.
using TileSums = float[kMmaN][kMmaM][4];

// Adds the products of `stages` stages of k. `offset_of(row)` is the place in a of the first
// element of a row of the tile, or -1. `tile` is the number of the weights' tile in b.
template <typename OffsetOf>
__device__ __forceinline__ void multiply_tile(TileSums& sum, unsigned ring, const dtype_t* a,
                                              const unsigned char* b, const scale_t* b_scale,
                                              const unsigned char* b_zero, int tile, int stages,
                                              const OffsetOf& offset_of) {
  const int lane_id = threadIdx.x % 32;
  const int warp_m = threadIdx.x / 32 % WARPS_M, warp_n = threadIdx.x / 32 / WARPS_M;
  const auto copy_stage = [&](int stage) {
    if (stage < stages) {
      const unsigned to = ring + stage % STAGES * STAGE_BYTES;
      copy_a(to, a, stage * BK, offset_of);
      copy_codes(to + kCodesAt, b, tile, stage * BK);
    }
    cp_async_commit();  // an empty group keeps the count of groups equal to the count of stages
  };
  const FactorTable table(b_scale, b_zero, tile, warp_n * WN);
  Factors factors[kMmaN];
  const auto load_factors = [&](int column) {
#pragma unroll
    for (int i = 0; i < kMmaN; ++i) factors[i] = table.at(i, column);
  };

#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) copy_stage(s);
  if constexpr (kPerStage) load_factors(0);
#pragma unroll 1
  for (int stage = 0; stage < stages; ++stage) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // the stage has landed for all, and no warp reads the one before it any more
    copy_stage(stage + STAGES - 1);
    const unsigned from = ring + stage % STAGES * STAGE_BYTES;
    Factors next[kMmaN];
    if constexpr (kPerStage && GROUPS > 1) {
#pragma unroll
      for (int i = 0; i < kMmaN; ++i) next[i] = table.at(i, (stage + 1) * BK);
    }
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      Packed<16> vectors[kMmaN][kVectors];
      if constexpr (kPackedLayout) {
#pragma unroll
        for (int i = 0; i < kMmaN; ++i) {
          const int row = warp_n * WN + i * 16;
#pragma unroll
          for (int v = 0; v < kVectors; ++v) {
            vectors[i][v] =
                load_shared<16>(from + kCodesAt + (row / 64 * kBoxes + box) * kBlockBytes +
                                (row % 64 / 16 * kVectors + v) * 512 + lane_id * 16);
          }
        }
      }
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        const int column = stage * BK + box * 64 + step * 16;
        if (!kPerStage && step * 16 % UNIT == 0) load_factors(column);
        unsigned rows_a[kMmaM / 2][4];
#pragma unroll
        for (int j = 0; j < kMmaM / 2; ++j) {
          const int row = warp_m * WM + j * 16 + lane_id / 16 * 8 + lane_id % 8;
          const int chunk = box * 8 + step * 2 + lane_id / 8 % 2;
          ldmatrix_x4(rows_a[j], from + row * kRowBytes + swizzle(row, chunk) * 16);
        }
#pragma unroll
        for (int i = 0; i < kMmaN; ++i) {
          Packed<kCodeBits> codes;
          if constexpr (kPackedLayout) {
            codes = codes_of(vectors[i], step);
          } else {
            codes = gather(from + kCodesAt, warp_n * WN + i * 16, box * 4 + step);
          }
          unsigned w[4];
          make_weights(w, codes, factors[i], kInHalves ? table.at(i, column + 8) : factors[i]);
#pragma unroll
          for (int j = 0; j < kMmaM; ++j) {
            mma_m16n8<dtype_t>(sum[i][j], w, rows_a[j / 2][j % 2 * 2],
                               rows_a[j / 2][j % 2 * 2 + 1]);
          }
        }
      }
    }
    if constexpr (kPerStage && GROUPS > 1) {
#pragma unroll
      for (int i = 0; i < kMmaN; ++i) factors[i] = next[i];
    }
  }
  cp_async_wait<0>();
  __syncthreads();  // from here on the ring's memory serves the results
}

// Writes the sums to `staged`, [BM][kStoreStride]: columns of d, with a gate first the gates and
// then their ups.
__device__ __forceinline__ void stage_sums(float* staged, const TileSums& sum) {
  const int lane_id = threadIdx.x % 32;
  const int warp_m = threadIdx.x / 32 % WARPS_M, warp_n = threadIdx.x / 32 / WARPS_M;
#pragma unroll
  for (int i = 0; i < kMmaN; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int place = warp_n * WN + i * 16 + half * 8 + lane_id / 4;
      // A gate's ups are staged behind all gates.
      const int column = STACK == 1 ? place : place / 16 * 8 + place % 8 + half * COLUMNS;
#pragma unroll
      for (int j = 0; j < kMmaM; ++j) {
        const int row = warp_m * WM + j * 8 + lane_id % 4 * 2;
        staged[row * kStoreStride + column] = sum[i][j][2 * half];
        staged[(row + 1) * kStoreStride + column] = sum[i][j][2 * half + 1];
      }
    }
  }
}

}  // namespace kernwright
