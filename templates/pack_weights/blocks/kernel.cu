#include <kernwright/config.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/quantized/mxfp4_word.cuh>

using namespace kernwright;
using namespace kernwright::config;

constexpr bool kIntegers = weights == weights_int4 || weights == weights_int8;
constexpr bool kZeros = config::zero != zero_none;
constexpr int kMostCode = (1 << BITS) - 1;

// The rows of a checkpoint, and their zero points.
struct Checkpoint {
  const unsigned char* __restrict__ b;
  const unsigned char* __restrict__ zeros;
  int n, k, groups, rows;

  // Returns the row that belongs to a row of blocks, or -1. With a gate 8 gates and their 8 ups
  // follow each other.
  __device__ __forceinline__ int row_of(int place) const {
    if constexpr (gate == gate_none) return place < n ? place : -1;
    const int pair = place / 16 * 8 + place % 8, half = place / 8 % 2;
    if (pair >= n) return -1;
    return gate == gate_stacked ? half * n + pair : 2 * pair + half;
  }
  // Returns the code of 4 bits of row `row` in a word of eight rows.
  static __device__ __forceinline__ unsigned in_word(unsigned word, int row) {
    const int nibble = source == source_awq ? row % 2 * 4 + row % 8 / 2 : row % 8;
    return word >> 4 * nibble & 15;
  }
  __device__ __forceinline__ unsigned zero_point(int row, int number) const {
    if constexpr (!kIntegers) return 0;
    if constexpr (!kZeros) return BITS == 4 ? 8 : 128;
    constexpr unsigned kAdded = config::zero == zero_less_one;
    if constexpr (source == source_rows) {
      return zeros[static_cast<long long>(row) * groups + number] + kAdded;
    } else if constexpr (BITS == 8) {
      return zeros[static_cast<long long>(number) * rows + row] + kAdded;
    } else {
      const long long word = static_cast<long long>(number) * (rows / 8) + row / 8;
      return in_word(reinterpret_cast<const unsigned*>(zeros)[word], row) + kAdded;
    }
  }
  // Returns the code of the columns behind the last.
  __device__ __forceinline__ unsigned no_code(int row) const {
    return ::min(zero_point(row, groups - 1), static_cast<unsigned>(kMostCode));
  }
};

// Spreads the eight codes of 4 bits of a word over bytes.
__device__ __forceinline__ uint2 bytes_of_nibbles(unsigned word) {
  const unsigned low = word & 0x0f0f0f0f, high = word >> 4 & 0x0f0f0f0f;
  return {__byte_perm(low, high, 0x5140), __byte_perm(low, high, 0x7362)};
}

// Unpacks a tile to bytes, [ROWS][PITCH]. Rows and columns that do not exist are left as they are.
__device__ __forceinline__ void unpack(unsigned char* tile, const Checkpoint& given, int first_row,
                                       int first_column) {
  if constexpr (source ==
                source_awq) {  // a word has eight rows of a column, which need not be one tile's
    for (int i = threadIdx.x; i < ROWS * DEPTH; i += THREADS) {
      const int row = given.row_of(first_row + i % ROWS), column = first_column + i / ROWS;
      if (row < 0 || column >= given.k) continue;
      const long long word = static_cast<long long>(column) * (given.rows / 8) + row / 8;
      tile[i % ROWS * PITCH + i / ROWS] = static_cast<unsigned char>(
          Checkpoint::in_word(__ldg(reinterpret_cast<const unsigned*>(given.b) + word), row));
    }
  } else {
    constexpr int kEights = DEPTH / 8;
    for (int i = threadIdx.x; i < ROWS * kEights; i += THREADS) {
      // Neighbouring threads read neighbours in memory.
      const int in_tile = source == source_rows ? i / kEights : i % ROWS;
      const int eight = source == source_rows ? i % kEights : i / ROWS;
      const int row = given.row_of(first_row + in_tile), column = first_column + eight * 8;
      if (row < 0 || column >= given.k) continue;
      Packed<BITS> codes;
      if constexpr (source == source_rows) {
        const long long at = static_cast<long long>(row) * (given.k / 8) + column / 8;
        codes = load<Load::read_only, BITS>(given.b + at * BITS);
      } else {
#pragma unroll
        for (int word = 0; word < BITS / 4; ++word) {
          const long long at =
              static_cast<long long>(column / 8 * (BITS / 4) + word) * given.rows + row;
          codes.word[word] = __ldg(reinterpret_cast<const unsigned*>(given.b) + at);
        }
      }
      uint2 bytes;
      if constexpr (BITS == 4) {
        bytes = bytes_of_nibbles(codes.word[0]);
      } else {
        bytes = {codes.word[0], codes.word[BITS / 4 - 1]};
      }
      *reinterpret_cast<uint2*>(tile + in_tile * PITCH + eight * 8) = bytes;
    }
  }
}

// Fills up the tile with codes that stand for 0.
__device__ __forceinline__ void fill_up(unsigned char* tile, const Checkpoint& given, int first_row,
                                        int first_column) {
  constexpr unsigned kNone = kIntegers && !kZeros ? (BITS == 4 ? 8 : 128) : 0;
  for (int i = threadIdx.x; i < ROWS * DEPTH; i += THREADS) {
    const int row = given.row_of(first_row + i / DEPTH), column = first_column + i % DEPTH;
    if (row >= 0 && column < given.k) continue;
    tile[i / DEPTH * PITCH + i % DEPTH] =
        static_cast<unsigned char>(row < 0 ? kNone : given.no_code(row));
  }
}

// Returns the vector of a lane, number `turn` of its BITS / 4, of 16 rows x 64 columns from
// `corner` on.
__device__ __forceinline__ Packed<16> packed_lane(const unsigned char* corner, int turn) {
  constexpr int kSteps = 16 / BITS;  // of 16 columns, in a vector
  const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  Packed<16> codes{};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const unsigned char* const at = corner + (row + pair % 2 * 8) * PITCH +
                                      (turn * kSteps + step) * 16 + pair / 2 * 8 + column;
      const unsigned two = *reinterpret_cast<const unsigned short*>(at);
      if constexpr (BITS == 4) {
        codes.word[step] |= ((two & 15) | (two & 0xf00) << 8) << 4 * pair;
      } else {
        codes.word[step * 2 + pair / 2] |= two << 16 * (pair % 2);
      }
    }
    if constexpr (weights == weights_mxfp4) codes.word[step] = packed_mxfp4(codes.word[step]);
  }
  return codes;
}

// Packs a tile of ROWS x DEPTH codes in each of the first `tiles` blocks, and scales and zero
// points in the others, of the expert blockIdx.y.
extern "C" __global__ void __launch_bounds__(THREADS)
    pack_weights_blocks(KW_PARAMETERS(pack_weights_blocks)) {
  extern __shared__ __align__(16) unsigned char tile[];
  release_next_kernel();
  await_previous_kernel();
  const long long expert = blockIdx.y, factors = static_cast<long long>(rows) * groups;
  constexpr int kZeroBits = source == source_rows ? 8 : BITS;
  const Checkpoint given{b + expert * rows * k / 8 * BITS,
                         b_zero + expert * factors * kZeroBits / 8,
                         n,
                         k,
                         groups,
                         rows};
  b_scale += expert * factors;
  packed_scale += expert * packed_rows * groups;
  packed_zero += expert * packed_rows * groups;
  if (blockIdx.x >= tiles) {
    for (int item = 0; item < 4; ++item) {
      const int i = (static_cast<int>(blockIdx.x - tiles) * 4 + item) * THREADS + threadIdx.x;
      if (i >= packed_rows * groups) return;
      const int in = i % 64, number = i / 64 % groups;
      const int row = given.row_of(i / 64 / groups * 64 + in / 16 * 16 + in % 2 * 8 + in % 16 / 2);
      const long long at = source == source_rows ? static_cast<long long>(row) * groups + number
                                                 : static_cast<long long>(number) * rows + row;
      packed_scale[i] = row < 0 ? scale_t{} : b_scale[at];
      if constexpr (kZeros) {
        packed_zero[i] = row < 0 ? 0 : static_cast<unsigned char>(given.zero_point(row, number));
      }
    }
    return;
  }
  const int tiles_k = (k + DEPTH - 1) / DEPTH, blocks_k = (k + 63) / 64;
  const int first_row = static_cast<int>(blockIdx.x / tiles_k) * ROWS;
  const int first_column = static_cast<int>(blockIdx.x % tiles_k) * DEPTH;
  unpack(tile, given, first_row, first_column);
  const bool is_whole =
      first_row + ROWS <= (gate == gate_none ? n : n / 8 * 16) && first_column + DEPTH <= k;
  if (!is_whole) fill_up(tile, given, first_row, first_column);
  __syncthreads();
  const int warp = threadIdx.x / 32;
#pragma unroll 1
  for (int i = warp; i < ROWS / 16 * (DEPTH / 64); i += THREADS / 32) {
    const int rows_of = i % (ROWS / 16) * 16, columns_of = i / (ROWS / 16) * 64;
    const int row = first_row + rows_of, column = first_column + columns_of;
    if (row >= packed_rows || column >= blocks_k * 64) continue;
    unsigned char* const to =
        packed + ((expert * packed_rows + row) / 64 * blocks_k + column / 64) * (512 * BITS) +
        row % 64 / 16 * (128 * BITS) + threadIdx.x % 32 * 16;
#pragma unroll
    for (int turn = 0; turn < BITS / 4; ++turn) {
      store<Store::plain>(to + turn * 512, packed_lane(tile + rows_of * PITCH + columns_of, turn));
    }
  }
}
