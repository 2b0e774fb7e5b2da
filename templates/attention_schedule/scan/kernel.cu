// The work list of attention by one block. Every unit of work has a number: the units of a sequence
// follow the units of the sequences before it. A slot has as many units as any other, so a running
// sum shows in which sequence each slot begins.

#include <kernwright/attention/schedule.cuh>
#include <kernwright/config.cuh>
#include <kernwright/ptx/programmatic.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

constexpr int kWarps = THREADS / 32;

struct Batch {
  const int* q_offsets;
  const int* kv_offsets;
  const int* kv_lengths;
  int q_len;

  __device__ __forceinline__ Demand demand_of(int sequence) const {
    int queries = q_len;
    if constexpr (lengths == lengths_ragged) {
      queries = q_offsets[sequence + 1] - q_offsets[sequence];
    }
    if constexpr (lengths == lengths_ragged && cache == cache_contiguous) {
      return {queries, kv_offsets[sequence + 1] - kv_offsets[sequence], static_cast<int>(window)};
    }
    return {queries, kv_lengths[sequence], static_cast<int>(window)};
  }
};

// Returns the sum of x over the threads before this one, and over all threads. Called by the whole
// block, which may use `warp_sums` again after the next barrier.
struct RunningSum {
  int before, all;

  __device__ __forceinline__ RunningSum(int x, int (&warp_sums)[kWarps]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int through = x;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int other = __shfl_up_sync(~0u, through, distance);
      if (lane >= distance) through += other;
    }
    if (lane == 31) warp_sums[warp] = through;
    __syncthreads();
    before = through - x;
    all = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      if (i < warp) before += warp_sums[i];
      all += warp_sums[i];
    }
  }
};

// The begin of a slot: a sequence, how many times kPieceKeys of its keys come before, and the slots
// of the sequence's first and last piece.
struct SlotBegin {
  int sequence, tile, begins, ends;
};

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_schedule_scan(KW_PARAMETERS(attention_schedule_scan)) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto* const slot_begins = reinterpret_cast<SlotBegin*>(memory);
  __shared__ int warp_sums[kWarps];
  const Batch lists{q_offsets, kv_offsets, kv_lengths, q_len};
  const int thread = static_cast<int>(threadIdx.x);
  // Slots behind all work begin at the end.
  for (int slot = thread; slot <= slots; slot += THREADS) slot_begins[slot] = {batch, 0, 0, 0};
  await_previous_kernel();
  release_next_kernel();

  int own = 0;
  for (int s = thread; s < batch; s += THREADS) own += lists.demand_of(s).units;
  const int all = RunningSum(own, warp_sums).all;
  const int share = max(1, (all + slots - 1) / slots);

  int unit = 0;
#pragma unroll 1
  for (int first = 0; first < batch; first += THREADS) {
    const int s = first + thread;
    const int units = s < batch ? lists.demand_of(s).units : 0;
    __syncthreads();
    const RunningSum sum(units, warp_sums);
    const int begin = unit + sum.before, last = begin + units - 1;
    unit += sum.all;
    // The first two units of a sequence are its begin, so that no piece is without keys.
    for (int slot = (begin + share - 1) / share; slot * share <= last; ++slot) {
      const int inside = slot * share - begin;
      slot_begins[slot] = {s, max(0, inside - 1), min(begin + 1, last) / share, last / share};
    }
  }
  __syncthreads();

  for (int slot = thread; slot < slots; slot += THREADS) {
    const SlotBegin from = slot_begins[slot], until = slot_begins[slot + 1];
    ScheduleEntry entry{-1, -1, -1, -1, -1, -1, -1, -1};
    if (from.sequence != until.sequence || from.tile != until.tile) {
      const bool is_cut = until.tile > 0;  // within its last sequence
      entry.first = from.sequence;
      entry.first_key = lists.demand_of(from.sequence).begin + from.tile * kPieceKeys;
      entry.first_begins = from.tile > 0 ? from.begins : slot;
      entry.first_ends = from.ends;
      entry.last = is_cut ? until.sequence : until.sequence - 1;
      const Demand demand = lists.demand_of(entry.last);
      entry.last_end = is_cut ? demand.begin + until.tile * kPieceKeys : demand.end;
      entry.last_ends = is_cut ? until.ends : slot;
    }
    work[slot] = entry;
  }
}
