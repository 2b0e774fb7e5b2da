#pragma once
// Adds up the sums of several warps, blocks or clusters that share the rows of a result of
// attention, each relative to its largest score.
//
// A block has `Parts` sums of each of its rows in shared memory. The blocks of a cluster send
// theirs to one another, so that each block adds up some of the groups of 4 columns. If the keys of
// the rows are in more splits than a cluster has blocks, clusters write their sums to a workspace,
// and the last cluster adds them up.
//
// A kernel brings three types. Its share: `split`, of `splits`, head() and entry(cluster), the
// places of its counters and of its lines. Its results: store(share, row, group, whole). Its
// addresses in shared memory: part(i, row) and sums(i, row) of part i; last() for a flag, landed()
// for an mbarrier, landing(block, i, groups) and landing_part(block, i, groups) for what other
// blocks send, and copy(i), 16 bytes of a thread where sums were.

#include <kernwright/math/exp.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/ptx/cluster.cuh>
#include <kernwright/ptx/cp_async.cuh>
#include <kernwright/ptx/mbarrier.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/ptx/warp_roles.cuh>
#include <kernwright/tile/softmax_tile.cuh>

namespace kernwright {

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

// The sums that clusters which share rows pass to the last of them, and counters of the clusters
// that have arrived. The blocks of one rank in all these clusters have a counter, and add up the
// same groups.
template <int Cluster, int Rows, int Groups>
struct SplitWorkspace {
  int* counters;
  float4* lines;  // each has the sums of a row, and for each rank the row's SoftmaxPart

  template <typename Share>
  __device__ __forceinline__ float4* line(const Share& share, int cluster, int row) const {
    return lines + (share.entry(cluster) * Rows + row) * (Groups + Cluster);
  }
  // Returns whether this block is the last of its rank in the head's `clusters`. Called by one
  // thread behind a barrier after the block's stores. The stores of the others are visible behind a
  // barrier after the call.
  __device__ __forceinline__ bool is_last(int head, int rank, int clusters) const {
    int* const counter = counters + head * Cluster + rank;
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

// The sums of `Rows` rows of `Groups` groups of columns, for `Threads` threads, which copy the sums
// of `AtOnce` clusters at a time.
template <int Parts, int Cluster, int Rows, int Groups, int Threads, int AtOnce>
struct SplitSums {
  using Workspace = SplitWorkspace<Cluster, Rows, Groups>;

  // Calls body(row, group) for the block's threads, each with some of the groups of 4 columns in
  // [begin, end) of all rows.
  template <typename Body>
  static __device__ __forceinline__ void each_group(int begin, int end, const Body& body) {
    for (int i = begin + threadIdx.x; i < end; i += Threads) body(i / Groups, i % Groups);
  }

  // Run by all consumers. Adds up the sums of the block's warps, which are in shared memory, and
  // the sums of other blocks. All threads of a cluster have arrived at its barrier; before, no
  // block may send to the others, whose memory may be in use.
  template <typename Share, typename Results, typename Addresses>
  static __device__ __forceinline__ void add_up(const Share& share, int rows,
                                                const Results& results, const Workspace& workspace,
                                                Addresses at) {
    const bool alone = share.splits <= Cluster;  // the cluster has all keys that are seen
    const int rank = Cluster == 1 ? 0 : cluster_rank();
    const int groups = rows * Groups, of_block = (groups + Cluster - 1) / Cluster;
    const int begin = rank * of_block, end = min(groups, begin + of_block);
    // Passes the sums of a group on: the result, or the workspace.
    const auto hand_on = [&](int row, int group, const Whole& whole) {
      if (alone) {
        results.store(share, row, group, whole);
      } else {
        float4* const line = workspace.line(share, share.split / Cluster, row);
        line[group] = whole.values;
        const bool is_first = group == 0 || row * Groups + group == begin;  // of this block's
        if (is_first) line[Groups + rank] = {whole.largest, whole.sum, 0, 0};
      }
    };
    if constexpr (Cluster > 1) {
      if (threadIdx.x == 0) {
        mbarrier_arrive_expect(at.landed(),
                               Cluster * max(0, end - begin) * (16 + sizeof(SoftmaxPart)));
      }
      cluster_wait();  // all blocks of the cluster have begun, and can be sent sums
    }
    each_group(0, groups, [&](int row, int group) {
      Whole whole;
      whole.add(Parts, [&](int warp, SoftmaxPart& part, float4& values) {
        const float2 pair = load_shared_pair<float>(at.part(warp, row));
        part = {pair.x, pair.y};
        values = load_quad(at.sums(warp, row) + group * 16);
      });
      if constexpr (Cluster == 1) {
        hand_on(row, group, whole);
      } else {
        const int place = row * Groups + group, to = place / of_block, i = place % of_block;
        const unsigned landed = cluster_address(at.landed(), to);
        cluster_store(cluster_address(at.landing(rank, i, of_block), to), whole.values, landed);
        cluster_store(cluster_address(at.landing_part(rank, i, of_block), to),
                      float2{whole.largest, whole.sum}, landed);
      }
    });
    if constexpr (Cluster > 1) {
      mbarrier_wait(at.landed(), 0);
      each_group(begin, end, [&](int row, int group) {
        const int i = row * Groups + group - begin;
        Whole whole;
        whole.add(Cluster, [&](int block, SoftmaxPart& part, float4& values) {
          const float2 pair = load_shared_pair<float>(at.landing_part(block, i, of_block));
          part = {pair.x, pair.y};
          values = load_quad(at.landing(block, i, of_block));
        });
        hand_on(row, group, whole);
      });
    }
    if (alone) return;
    const int clusters = (share.splits + Cluster - 1) / Cluster;
    named_barrier_sync(1, Threads);
    if (threadIdx.x == 0) store_number(at.last(), workspace.is_last(share.head(), rank, clusters));
    named_barrier_sync(1, Threads);
    if (!load_number(at.last())) return;
    each_group(begin, end, [&](int row, int group) {
      Whole whole;
#pragma unroll 1
      for (int first = 0; first < clusters; first += AtOnce) {
        const int count = min(AtOnce, clusters - first);
#pragma unroll 4
        for (int i = 0; i < count; ++i) {
          const float4* const line = workspace.line(share, first + i, row);
          cp_async<16>(at.copy(2 * i), line + group);
          cp_async<16>(at.copy(2 * i + 1), line + Groups + rank);
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
};

}  // namespace kernwright
