#pragma once
// Adds up the sums of several warps, blocks or clusters to the result.

#include "layout.cuh"
#include "share.cuh"
#include <kernwright/attention/scores.cuh>
#include <kernwright/attention/sequences.cuh>
#include <kernwright/config.cuh>
#include <kernwright/math/exp.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/ptx/cluster.cuh>
#include <kernwright/ptx/cp_async.cuh>
#include <kernwright/ptx/mbarrier.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/ptx/warp_roles.cuh>
#include <kernwright/tile/softmax_tile.cuh>

namespace {

// Several parts of a row added up, in 4 columns.
struct Whole {
  float largest = hidden_score(), sum = 0;
  float4 values = {0, 0, 0, 0};

  // Adds `count` parts in their order, four at a time. load(i, part, x) sets `part` and x to part i
  // and its values.
  template <typename Load>
  __device__ __forceinline__ void add(int count, const Load& load) {
#pragma unroll
    for (int first = 0; first < count; first += 4) {
      SoftmaxPart parts[4];
      float4 x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        parts[i] = {hidden_score(), 0};
        x[i] = {0, 0, 0, 0};
        if (first + i < count) load(first + i, parts[i], x[i]);
      }
      float next = largest;
#pragma unroll
      for (const SoftmaxPart& part : parts) next = larger(next, part.largest);
      if (next == hidden_score()) continue;
      rescale(exp2_fast(largest - next));
      largest = next;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float scale = exp2_fast(parts[i].largest - next);
        sum += parts[i].sum * scale;
        values = {values.x + x[i].x * scale, values.y + x[i].y * scale, values.z + x[i].z * scale,
                  values.w + x[i].w * scale};
      }
    }
  }

 private:
  __device__ __forceinline__ void rescale(float factor) {
    sum *= factor;
    values = {values.x * factor, values.y * factor, values.z * factor, values.w * factor};
  }
};

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

// The sums that clusters which share a head pass to the last of them, and counters of the clusters
// that have arrived. The blocks of one rank in all clusters of a head have a counter, and add up
// the same groups.
struct Workspace {
  int* counters;
  float4* lines;  // each has the sums of a row, and for each rank the row's SoftmaxPart

  __device__ __forceinline__ float4* line(const Share& share, int cluster, int row) const {
    return lines + (share.entry(cluster) * kRows + row) * (kGroups + CLUSTER);
  }
  // Returns whether this block is the last of its rank in the head's `clusters`. Called by one
  // thread behind a barrier after the block's stores. The stores of the others are visible behind a
  // barrier after the call.
  __device__ __forceinline__ bool is_last(int head, int rank, int clusters) const {
    int* const counter = counters + head * CLUSTER + rank;
    int before;
    asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(counter)
                 : "memory");
    const bool last = before == clusters - 1;
    if (last) *counter = 0;
    return last;
  }
};

// Calls body(row, group) for the block's threads, each with some of the groups of 4 columns in
// [begin, end) of all rows.
template <typename Body>
__device__ __forceinline__ void each_group(int begin, int end, const Body& body) {
  for (int i = begin + threadIdx.x; i < end; i += kConsumers) body(i / kGroups, i % kGroups);
}

// Run by all consumers. Adds up the sums of the block's warps, which are in shared memory, and the
// sums of other blocks. Each block of a cluster does so for some of the groups of columns, which
// the others send to it. All threads have arrived at the cluster's barrier.
__device__ __forceinline__ void add_up(const Share& share, int rows, const Results& results,
                                       const Workspace& workspace, Addresses at) {
  const bool alone = share.splits <= CLUSTER;  // the cluster has all keys that are seen
  const int rank = CLUSTER == 1 ? 0 : cluster_rank();
  const int groups = rows * kGroups, of_block = (groups + CLUSTER - 1) / CLUSTER;
  const int begin = rank * of_block, end = min(groups, begin + of_block);
  // Passes the sums of a group on: the result, or the workspace.
  const auto hand_on = [&](int row, int group, const Whole& whole) {
    if (alone) {
      results.store(share, row, group, whole);
    } else {
      float4* const line = workspace.line(share, share.split / CLUSTER, row);
      line[group] = whole.values;
      const bool is_first = group == 0 || row * kGroups + group == begin;  // of this block's
      if (is_first) line[kGroups + rank] = {whole.largest, whole.sum, 0, 0};
    }
  };
  if constexpr (CLUSTER > 1) {
    if (threadIdx.x == 0) {
      mbarrier_arrive_expect(at.landed(),
                             CLUSTER * max(0, end - begin) * (16 + sizeof(SoftmaxPart)));
    }
    cluster_wait();  // all blocks of the cluster have begun, and can be sent sums
  }
  each_group(0, groups, [&](int row, int group) {
    Whole whole;
    whole.add(WARPS, [&](int warp, SoftmaxPart& part, float4& values) {
      const float2 pair = load_shared_pair<float>(at.part(warp, row));
      part = {pair.x, pair.y};
      values = load_quad(at.sums(warp, row) + group * 16);
    });
    if constexpr (CLUSTER == 1) {
      hand_on(row, group, whole);
    } else {
      const int place = row * kGroups + group, to = place / of_block, i = place % of_block;
      const unsigned landed = cluster_address(at.landed(), to);
      cluster_store(cluster_address(at.landing(rank, i, of_block), to), whole.values, landed);
      cluster_store(cluster_address(at.landing_part(rank, i, of_block), to),
                    float2{whole.largest, whole.sum}, landed);
    }
  });
  if constexpr (CLUSTER > 1) {
    mbarrier_wait(at.landed(), 0);
    each_group(begin, end, [&](int row, int group) {
      const int i = row * kGroups + group - begin;
      Whole whole;
      whole.add(CLUSTER, [&](int block, SoftmaxPart& part, float4& values) {
        const float2 pair = load_shared_pair<float>(at.landing_part(block, i, of_block));
        part = {pair.x, pair.y};
        values = load_quad(at.landing(block, i, of_block));
      });
      hand_on(row, group, whole);
    });
  }
  if (alone) return;
  const int clusters = (share.splits + CLUSTER - 1) / CLUSTER;
  named_barrier_sync(1, kConsumers);
  if (threadIdx.x == 0) store_number(at.last(), workspace.is_last(share.head(), rank, clusters));
  named_barrier_sync(1, kConsumers);
  if (!load_number(at.last())) return;
  each_group(begin, end, [&](int row, int group) {
    Whole whole;
#pragma unroll 1
    for (int first = 0; first < clusters; first += kAtOnce) {
      const int count = min(kAtOnce, clusters - first);
#pragma unroll 4
      for (int i = 0; i < count; ++i) {
        const float4* const line = workspace.line(share, first + i, row);
        cp_async<16>(at.copy(2 * i), line + group);
        cp_async<16>(at.copy(2 * i + 1), line + kGroups + rank);
      }
      cp_async_commit();
      cp_async_wait<0>();
      whole.add(count, [&](int i, SoftmaxPart& part, float4& values) {
        values = load_quad(at.copy(2 * i));
        const float2 pair = load_shared_pair<float>(at.copy(2 * i + 1));
        part = {pair.x, pair.y};
      });
    }
    results.store(share, row, group, whole);
  });
}

}  // namespace
