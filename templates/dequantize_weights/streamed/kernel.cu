#include <kernwright/config.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/quantized/codes.cuh>
#include <kernwright/quantized/mxfp4_word.cuh>

using namespace kernwright;
using namespace kernwright::config;

constexpr Store kStore = STREAMING ? Store::streaming : Store::plain;
constexpr int kTurns = kCodeBits / 4;              // vectors of 16 bytes that a lane has of a block
constexpr int kPitch = 64 * sizeof(dtype_t) + 16;  // of a row in shared memory: no bank conflicts

// Returns the group of a column; columns behind the last take the last one's.
__device__ __forceinline__ int group_of(int column) {
  return ::min(static_cast<int>((column + group - first) / group), static_cast<int>(GROUPS) - 1);
}

// Returns a number of the weights from its code and the place of its scale and zero point.
struct Factors {
  const scale_t* __restrict__ scales;
  const unsigned char* __restrict__ zeros;

  __device__ __forceinline__ float number(unsigned code, long long place) const {
    const float zero_point = kZeros ? static_cast<float>(__ldg(zeros + place)) : kNoZero;
    return code_value(code, zero_point) * scale_value(scales[place]);
  }
};

// Dequantizes eight columns of a row in turn.
__device__ __forceinline__ void take_rows(const unsigned char* b, const Factors& factors,
                                          dtype_t* w, long long task) {
  constexpr int kTasks = (EIGHTS + ITEMS - 1) / ITEMS;  // of a row
  const long long row = task / kTasks;
  const int own = static_cast<int>(task % kTasks);
  Packed<kCodeBits> codes[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int eight = own + i * kTasks;
    if (eight < EIGHTS) {
      codes[i] = load<Load::read_only, kCodeBits>(b + (row * EIGHTS + eight) * kCodeBits);
    }
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int eight = own + i * kTasks;
    if (eight >= EIGHTS) continue;
    const long long place = row * GROUPS + group_of(eight * 8);
    float value[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const unsigned code = codes[i].word[e * kCodeBits / 32] >> e * kCodeBits % 32;
      value[e] = factors.number(code & ((1u << kCodeBits) - 1), place);
    }
    store_elements<kStore>(w + (row * EIGHTS + eight) * 8, value);
  }
}

// Dequantizes 16 rows of ITEMS neighbouring blocks in a warp. Lanes hold pairs of columns, which
// shared memory turns to rows.
__device__ __forceinline__ void take_blocks(unsigned char* turned, const unsigned char* b,
                                            const Factors& factors, dtype_t* w, int n_rows,
                                            int all_rows, long long task) {
  constexpr int kTasks = (BLOCKS + ITEMS - 1) / ITEMS;  // of a row of blocks
  const int lane_id = threadIdx.x % 32;
  const int warp = static_cast<int>(task % 4);  // its rows in the block
  const long long row_block = task / 4 / kTasks;
  const int own = static_cast<int>(task / 4 % kTasks) * ITEMS;
  Packed<16> codes[ITEMS][kTurns];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const unsigned char* const from = b + (row_block * BLOCKS + own + i) * kBlockBytes;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      if (own + i < BLOCKS) {
        codes[i][turn] =
            load<Load::no_allocate, 16>(from + (warp * kTurns + turn) * 512 + lane_id * 16);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (own + i >= BLOCKS) continue;
    const int first_column = (own + i) * 64;
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      Packed<16> own_codes = codes[i][step * kTurns / 4];
      if constexpr (kExponents) own_codes.word[step] = unpacked_mxfp4(own_codes.word[step]);
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const int half = pair % 2, column = step * 16 + pair / 2 * 8 + lane_id % 4 * 2;
        const long long place = (row_block * GROUPS + group_of(first_column + column)) * 64 +
                                warp * 16 + lane_id / 4 * 2 + half;
        float value[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int at = kCodeBits == 4 ? step * 32 + pair * 4 + e * 16
                                        : step % 2 * 64 + pair * 16 + e * 8;  // bits
          const unsigned code = own_codes.word[at / 32] >> at % 32 & ((1u << kCodeBits) - 1);
          value[e] = factors.number(code, place);
        }
        const int at = (lane_id / 4 + half * 8) * kPitch + column * sizeof(dtype_t);
        *reinterpret_cast<unsigned*>(turned + at) = pack_pair<dtype_t>(value[0], value[1]);
      }
    }
    __syncwarp();
#pragma unroll
    for (int turn = 0; turn < 4; ++turn) {
      const int in_warp = turn * 4 + lane_id / 8, piece = lane_id % 8;
      const int in_matrix = static_cast<int>(row_block) * 64 + warp * 16 + in_warp;
      // With a gate the rows of a warp are 8 gates and their ups.
      const int column_of_d = in_matrix / 16 * 8 + in_matrix % 8;
      const bool exists = gate == gate_none ? in_matrix < all_rows : column_of_d < n_rows;
      const int row = gate == gate_none ? in_matrix : column_of_d + in_matrix % 16 / 8 * n_rows;
      const int column = first_column + piece * 8;
      if (exists && column < k) {
        const auto eight = load<Load::plain, 16>(turned + in_warp * kPitch + piece * 16);
        store<kStore>(w + static_cast<long long>(row) * k + column, eight);
      }
    }
    __syncwarp();
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    dequantize_weights_streamed(KW_PARAMETERS(dequantize_weights_streamed)) {
  release_next_kernel();
  const long long task = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  const Factors factors{b_scale, b_zero};
  await_previous_kernel();
  if constexpr (kPackedLayout) {
    __shared__ __align__(16) unsigned char turned[THREADS / 32][16 * kPitch];
    if (task < tasks) {
      take_blocks(turned[threadIdx.x / 32], b, factors, w, n, rows, task / 32);
    }
  } else {
    if (task < tasks) take_rows(b, factors, w, task);
  }
}
