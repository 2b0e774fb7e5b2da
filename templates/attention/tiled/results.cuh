#pragma once
// Turns sums of weighted values into the result, or stores them to the workspace if a row's keys
// are split.

#include "tiles.cuh"
#include <kernwright/attention/scores.cuh>
#include <kernwright/attention/sequences.cuh>
#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/tile/softmax_tile.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

// Returns 2^(from - to), for `from` not above `to`. Both may be minus infinity, for which the
// result is 0.
__device__ __forceinline__ float power_between(float from, float to) {
  return exp2_fast(from - (to == hidden_score() ? 0.0f : to));
}

// Adds the sink to a row's part. Returns the factor that turns its sums into the result: 0 for a
// row that sees nothing.
__device__ __forceinline__ float finish(SoftmaxPart& row, const float* sinks, int head) {
  float factor = 1;
  if constexpr (sink != sink_none) {
    const float logit = sinks[head] * kLog2E;
    const float largest = larger(row.largest, logit);
    factor = power_between(row.largest, largest);
    row = {largest, row.sum * factor + power_between(logit, largest)};
  }
  return row.sum == 0 ? 0.0f : factor / row.sum;
}

__device__ __forceinline__ float log_of(const SoftmaxPart& row) {
  const float log2_sum = row.largest + log2f(row.sum);
  return lse == lse_base2 ? log2_sum : log2_sum * kLn2;
}

// The destination of one row: none if both are null.
struct RowResult {
  out_t* o = nullptr;
  float* sums = nullptr;  // instead of o, if sums are added to others later
  float factor = 1;

  __device__ __forceinline__ bool exists() const { return o != nullptr || sums != nullptr; }

  template <int Count>
  __device__ __forceinline__ void write(int column, float (&value)[Count]) const {
    if (sums != nullptr) {
      if constexpr (descale != descale_none) multiply(value);
      store_elements<Store::plain>(sums + column, value);
    } else {
      multiply(value);
      store_elements<Store::plain>(o + column, value);
    }
  }

 private:
  template <int Count>
  __device__ __forceinline__ void multiply(float (&value)[Count]) const {
#pragma unroll
    for (int i = 0; i < Count; ++i) value[i] *= factor;
  }
};

// The rows of a share.
struct Results {
  out_t* o;
  float* lse_out;
  float* sums;  // of the share's part of the keys; null if it has all
  SoftmaxPart* parts;
  const float* sinks;
  int q_tokens;
  float value_scale;

  // Returns the destination of a row. Also stores its SoftmaxPart or its LSE, in the thread of the
  // row with `writes_part`. Sums of no keys stay unwritten.
  __device__ __forceinline__ RowResult row(const Share& share, int row, SoftmaxPart part,
                                           bool writes_part) const {
    if (row >= share.rows) return {};
    const int query = share.query(row), head = share.head(row);
    const long long at = lse_place(share.sequence, query, head, q_tokens);
    if (sums != nullptr) {
      if (writes_part) parts[at] = part;
      return {nullptr, share.tiles() > 0 ? sums + at * head_dim_v : nullptr, value_scale};
    }
    const float factor = finish(part, sinks, head) * value_scale;
    if (lse != lse_none && writes_part) lse_out[at] = log_of(part);
    return {o + query_place(share.sequence, query, head, q_tokens, ldo, head_dim_v), nullptr,
            factor};
  }
};

}  // namespace
