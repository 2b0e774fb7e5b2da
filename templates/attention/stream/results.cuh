#pragma once
// What becomes of the sums of several warps, blocks or clusters: the result.

#include "layout.cuh"
#include "share.cuh"
#include <kernwright/attention/scores.cuh>
#include <kernwright/attention/sequences.cuh>
#include <kernwright/attention/split_sums.cuh>
#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/tile/softmax_tile.cuh>

namespace {

using Sums = SplitSums<WARPS, CLUSTER, kRows, kGroups, kConsumers, kAtOnce>;

struct Results {
  out_t* o;
  float* lse_out;
  const float* sinks;
  int q_tokens, ldo;
  float value_scale;

  // Stores 4 columns of a row.
  __device__ __forceinline__ void store(const Share& share, int row, int group, Whole whole) const {
    const Sequence& sequence = share.sequence;
    if (query_of(row) >= sequence.queries) return;
    const int head = head_of(row, share.kv_head);
    if constexpr (sink == sink_head) {
      whole.add(1, [&](int, SoftmaxPart& part, float4&) { part = {sinks[head] * kLog2E, 1}; });
    }
    const float inverse = whole.sum == 0 ? 0.0f : value_scale / whole.sum;
    uint2 words = {pack_pair<out_t>(whole.values.x * inverse, whole.values.y * inverse),
                   pack_pair<out_t>(whole.values.z * inverse, whole.values.w * inverse)};
    *reinterpret_cast<uint2*>(
        o + group * 4 + query_place(sequence, query_of(row), head, q_tokens, ldo, head_dim_v)) =
        words;
    if (lse != lse_none && group == 0) {
      const float log2_sum = whole.sum == 0 ? hidden_score() : whole.largest + __log2f(whole.sum);
      lse_out[lse_place(sequence, query_of(row), head, q_tokens)] =
          lse == lse_base2 ? log2_sum : log2_sum * kLn2;
    }
  }
};

}  // namespace
