#include <kernwright/config.cuh>
#include <kernwright/math/bases.cuh>
#include <kernwright/math/exp.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/programmatic.cuh>

using namespace kernwright;
using namespace kernwright::config;

using Vector = Elements<dtype_t, LANES>;

constexpr Store kStore = STREAMING ? Store::streaming : Store::plain;
constexpr bool kBase2 = lse_parts == lse_parts_base2;

// Returns e^(from - to), to the base of the parts, for `from` not above `to`.
__device__ __forceinline__ float weight(float from, float to) {
  return exp2_fast((from - to) * (kBase2 ? 1.0f : kLog2E));
}

// Some parts of a vector of a row, merged: their largest lse, and relative to it the sum of their
// weights and the sums of their weighted elements.
struct State {
  float largest = -INFINITY;
  float sum = 0;
  float value[LANES] = {};

  // Raises the largest lse to `to` at least. Returns the base of the weights, which is a number
  // also while all parts are empty.
  __device__ __forceinline__ float raise(float to) {
    to = larger(largest, to);
    const float base = to == -INFINITY ? 0.0f : to;
    const float shrink = weight(largest, base);
    largest = to;
    sum *= shrink;
#pragma unroll
    for (float& x : value) x *= shrink;
    return base;
  }
  __device__ __forceinline__ void add(float factor, float other_sum,
                                      const float (&other_value)[LANES]) {
    sum += factor * other_sum;
#pragma unroll
    for (int i = 0; i < LANES; ++i) value[i] += factor * other_value[i];
  }
};

// Returns 1 / x of a sum of weights whose largest is 1. It is exact for a power of two, and 0 for
// the 0 of rows that saw nothing. A division has code for subnormal numbers too.
__device__ __forceinline__ float reciprocal(float x) {
  const float first = __fdividef(1.0f, x);
  return x == 0 ? 0.0f : fmaf(first, fmaf(-x, first, 1.0f), first);
}

// Returns the merged lse, to the base that is asked for.
__device__ __forceinline__ float log_of(const State& state) {
  const float own = state.largest + logf(state.sum) * (kBase2 ? kLog2E : 1.0f);
  if constexpr (lse == lse_natural && kBase2) return own * kLn2;
  if constexpr (lse == lse_base2 && !kBase2) return own * kLog2E;
  return own;
}

// Threads along x have vectors of rows: neighbours have the vectors of one row, and then the
// vectors of the next head (layout=bshd) or token (bhsd). A thread has its vector in ITEMS tokens,
// and the lse of a part of these are side by side. Threads along y have different parts.
extern "C" __global__ void __launch_bounds__(THREADS* SPLIT)
    attention_merge_streamed(KW_PARAMETERS(attention_merge_streamed)) {
  release_next_kernel();
  const long long task = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  const int unit = static_cast<int>(task % UNITS);
  const auto rest = static_cast<unsigned>(task / UNITS);
  constexpr unsigned kHeads = heads;
  constexpr bool kTokensOutside = layout == layout_bshd;
  const unsigned head = kTokensOutside ? rest % kHeads : rest / groups % kHeads;
  const unsigned group = kTokensOutside ? rest / kHeads % groups : rest % groups;
  const unsigned sequence = rest / kHeads / groups;
  const int first_token = static_cast<int>(group) * ITEMS;
  const int tokens = sequence < batch ? ::min(ITEMS, q_len - first_token) : 0;

  // For the first token: its row among the rows of all heads, and the row of the token or head in
  // o.
  const int lse_row = static_cast<int>((sequence * kHeads + head) * q_len + first_token);
  const int o_row = kTokensOutside ? static_cast<int>(sequence * q_len + first_token) : lse_row;
  const int column = (kTokensOutside ? head * static_cast<int>(head_dim_v) : 0) + unit * LANES;
  await_previous_kernel();
  State state[ITEMS];
  const int own_part = threadIdx.y * UNROLL;
  const dtype_t* x_from = o_parts + own_part * o_part_pitch + o_row * ldp + column;
  const float* lse_from = lse_parts + own_part * lse_part_pitch + lse_row;
#pragma unroll 1
  for (int first = own_part; first < parts; first += SPLIT * UNROLL) {
    float exponent[UNROLL][ITEMS];
    Vector x[UNROLL][ITEMS] = {};
    const dtype_t* x_part = x_from;
    const float* lse_part = lse_from;
#pragma unroll
    for (int p = 0; p < UNROLL; ++p) {
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) {
        exponent[p][i] = -INFINITY;
        if (first + p < parts && i < tokens) {
          exponent[p][i] = __ldg(lse_part + i);
          if constexpr (EAGER) {
            x[p][i] = load_elements<Load::read_only, LANES>(x_part + i * ldp);
          }
        }
      }
      x_part += o_part_pitch;
      lse_part += lse_part_pitch;
    }
    // The elements of an empty part do not count, even if they are NaN.
    x_part = x_from;
#pragma unroll
    for (int p = 0; p < UNROLL; ++p) {
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) {
        const bool empty = exponent[p][i] == -INFINITY;
        if constexpr (EAGER) {
          if (empty) x[p][i] = {};
        } else if (!empty) {
          x[p][i] = load_elements<Load::read_only, LANES>(x_part + i * ldp);
        }
      }
      x_part += o_part_pitch;
    }
    x_from += SPLIT * UNROLL * o_part_pitch;
    lse_from += SPLIT * UNROLL * lse_part_pitch;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      float largest = exponent[0][i];
#pragma unroll
      for (int p = 1; p < UNROLL; ++p) largest = larger(largest, exponent[p][i]);
      const float base = state[i].raise(largest);
#pragma unroll
      for (int p = 0; p < UNROLL; ++p) {
        float value[LANES];
#pragma unroll
        for (int j = 0; j < LANES; ++j) value[j] = x[p][i][j];
        state[i].add(weight(exponent[p][i], base), 1, value);
      }
    }
  }

  if constexpr (SPLIT > 1) {  // with one token a thread
    constexpr int kOthers = SPLIT > 1 ? SPLIT - 1 : 1;
    __shared__ float largest[kOthers][THREADS];
    __shared__ float sums[kOthers][THREADS];
    __shared__ float values[kOthers][LANES][THREADS];
    if (threadIdx.y > 0) {
      const int own = threadIdx.y - 1;
      largest[own][threadIdx.x] = state[0].largest;
      sums[own][threadIdx.x] = state[0].sum;
#pragma unroll
      for (int j = 0; j < LANES; ++j) values[own][j][threadIdx.x] = state[0].value[j];
    }
    __syncthreads();
    if (threadIdx.y > 0) return;
#pragma unroll
    for (int other = 0; other < kOthers; ++other) {
      float value[LANES];
#pragma unroll
      for (int j = 0; j < LANES; ++j) value[j] = values[other][j][threadIdx.x];
      const float base = state[0].raise(largest[other][threadIdx.x]);
      state[0].add(weight(largest[other][threadIdx.x], base), sums[other][threadIdx.x], value);
    }
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (i >= tokens) break;
    const float factor = reciprocal(state[i].sum);
    float value[LANES];
#pragma unroll
    for (int j = 0; j < LANES; ++j) {
      value[j] = state[i].value[j] * factor;
    }
    store_elements<kStore>(o + (o_row + i) * ldo + column, value);
    if (config::lse != lse_none && unit == 0) lse[lse_row + i] = log_of(state[i]);
  }
}
