#pragma once
// Adds the sums over parts of k to sums over all of k: between the blocks of a cluster (SPLIT), and
// through memory (SLICES).

#include "layout.cuh"
#include "result.cuh"
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/cluster.cuh>
#include <kernwright/ptx/mbarrier.cuh>

namespace {

__device__ __forceinline__ Unit unit_of(const Acc& acc, int index) {
  Unit unit;
#pragma unroll
  for (int half = 0; half < STACK; ++half) {
    const float* const x = &acc[half][4 * index];
    unit.sums[half] = {x[0], x[1], x[2], x[3]};
  }
  return unit;
}

__device__ __forceinline__ void add(float4& sum, const float4& x) {
  sum = {sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w};
}

// Sends the sums to the blocks that own them, adds up the sums that this block owns, and calls
// `deliver(index, thread, unit)` with each.
template <typename Deliver>
__device__ __forceinline__ void reduce(const Acc& acc, Addresses at, int rank,
                                       const Deliver& deliver) {
  const unsigned thread = threadIdx.x;
#pragma unroll
  for (int i = 0; i < kFragments; ++i) {
    const unsigned unit = i * CONSUMER_THREADS + thread, owner = unit / kOwned;
    const Unit mine = unit_of(acc, i);
#pragma unroll
    for (int half = 0; half < STACK; ++half) {
      cluster_store(cluster_address(at.partial(rank, half, unit % kOwned), owner), mine.sums[half],
                    cluster_address(at.received(), owner));
    }
  }
  mbarrier_wait(at.received(), 0);
#pragma unroll 1
  for (unsigned i = thread; i < kOwned; i += CONSUMER_THREADS) {
    Unit whole;
#pragma unroll
    for (int half = 0; half < STACK; ++half) {
      float4& sum = whole.sums[half];
      sum = load_quad(at.partial(0, half, i));
#pragma unroll
      for (int from = 1; from < SPLIT; ++from) {
        add(sum, load_quad(at.partial(from, half, i)));
      }
    }
    const unsigned unit = rank * kOwned + i;
    deliver(unit / CONSUMER_THREADS, unit % CONSUMER_THREADS, whole);
  }
}

// Returns the place in the workspace for a slice's sums of a unit.
__device__ __forceinline__ float4& slice_sums(float4* sums, const Tile& tile, int slice, int half,
                                              unsigned unit) {
  return sums[((tile.number * SLICES + slice) * STACK + half) * kUnits + unit];
}

}  // namespace
