// A stable sort of pairs by expert. Each block has EXPERTS neighbouring experts and reads the ids
// of all pairs, so no block waits for another one.

#include <kernwright/config.cuh>
#include <kernwright/ptx/programmatic.cuh>

using namespace kernwright;
using namespace kernwright::config;

namespace {

constexpr int kWarps = THREADS / 32;
constexpr int kEntries = EXPERTS * kWarps;                // counts of a block
constexpr int kOwn = (kEntries + THREADS - 1) / THREADS;  // of a thread
constexpr int kLoads = 4;

// Returns the sum of x over the threads before this one, and adds all of them to `all`. Called by
// the whole block, once for each array.
__device__ __forceinline__ int sum_before(int x, int (&of_warps)[kWarps], int& all) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int through = x;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(~0u, through, distance);
    if (lane >= distance) through += other;
  }
  if (lane == 31) of_warps[warp] = through;
  __syncthreads();
  int before = through - x;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    if (i < warp) before += of_warps[i];
    all += of_warps[i];
  }
  return before;
}

// The neighbouring pairs of a warp.
struct Pairs {
  const int* ids;
  int from, until, first, experts, lowest;

  // Calls visit(i, e) for the pairs in order, with the expert of each from the first of the block
  // on. Lanes behind the last pair have an expert of a later block.
  template <typename Visit>
  __device__ __forceinline__ void each(const Visit& visit) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int base = from; base < until; base += 32 * kLoads) {
      int id[kLoads];
#pragma unroll
      for (int k = 0; k < kLoads; ++k) {
        const int i = base + k * 32 + lane;
        id[k] = i < until ? __ldg(ids + i) : 0;
      }
#pragma unroll
      for (int k = 0; k < kLoads; ++k) {
        const int i = base + k * 32 + lane;
        const unsigned e = static_cast<unsigned>(id[k]) - static_cast<unsigned>(first);
        const int here = static_cast<int>(min(e, static_cast<unsigned>(experts))) - lowest;
        visit(i, i < until ? here : EXPERTS);
      }
    }
  }
};

}  // namespace

// Every warp has neighbouring pairs. It counts the pairs of each expert, and a running sum over
// experts and the warps of each makes the counts the rows at which they begin. Then it takes its
// pairs in order again. Expert `experts` stands for all that are not here.
extern "C" __global__ void __launch_bounds__(THREADS)
    order_experts_scan(KW_PARAMETERS(order_experts_scan)) {
  __shared__ int begins[kEntries];  // by expert, then by warp
  __shared__ int smaller_of_warps[kWarps], own_of_warps[kWarps];
  release_next_kernel();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int lowest = static_cast<int>(blockIdx.x) * EXPERTS;
  const int share = ceil_div(ceil_div(rows, kWarps), 32) * 32;
  const int from = min(warp * share, rows);
  for (int i = thread; i < kEntries; i += THREADS) begins[i] = 0;
  __syncthreads();
  await_previous_kernel();

  const Pairs pairs{ids, from, min(from + share, rows), first, experts, lowest};
  int smaller = 0;
  pairs.each([&](int, int e) {
    smaller += e < 0 ? 1 : 0;
    if (e >= 0 && e < EXPERTS) atomicAdd(&begins[e * kWarps + warp], 1);
  });
  int begin = 0;
  sum_before(smaller, smaller_of_warps, begin);  // its barrier is behind the counts too

  int count[kOwn], sum = 0, all = 0;
#pragma unroll
  for (int k = 0; k < kOwn; ++k) {
    const int entry = thread * kOwn + k;
    count[k] = entry < kEntries ? begins[entry] : 0;
    sum += count[k];
  }
  begin += sum_before(sum, own_of_warps, all);  // its barrier is behind these reads too
#pragma unroll
  for (int k = 0; k < kOwn; ++k) {
    const int entry = thread * kOwn + k;
    if (entry >= kEntries) continue;
    begins[entry] = begin;
    begin += count[k];
    const int e = lowest + entry / kWarps;
    if (entry % kWarps == kWarps - 1 && e < experts) ends[e] = begin;
  }
  __syncthreads();

  pairs.each([&](int i, int e) {
    const bool is_own = e >= 0 && e < EXPERTS;
    const unsigned owns = __ballot_sync(~0u, is_own);
    if (owns == 0) return;
    if (is_own) {
      const unsigned alike = __match_any_sync(owns, e);
      int* const next = &begins[e * kWarps + warp];
      const int row = *next + __popc(alike & ((1u << lane) - 1));
      __syncwarp(owns);
      if (lane == 31 - __clz(static_cast<int>(alike))) *next = row + 1;
      row_of[row] = i / top;
      place[i] = lowest + e < experts ? row : -1;
    }
    __syncwarp();
  });
}
