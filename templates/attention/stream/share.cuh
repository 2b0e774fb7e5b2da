#pragma once
// The keys of a head that a block takes.

#include "layout.cuh"
#include <kernwright/attention/schedule.cuh>
#include <kernwright/attention/sequences.cuh>
#include <kernwright/config.cuh>

namespace {

// The keys that a block takes of a head: [begin, end), in tiles from `begin` on.
struct Share {
  Sequence sequence;
  int kv_head, split, splits;  // of the head, only splits with keys
  int begin, end;
  int place;  // of the head in the workspace

  // All heads have equally many blocks; `sequence` belongs to this one.
  __device__ __forceinline__ Share(const Sequence& sequence, int splits_of_head, int keys_of_split)
      : sequence(sequence),
        kv_head(blockIdx.x / splits_of_head % kv_heads),
        split(blockIdx.x % splits_of_head),
        place(blockIdx.x / splits_of_head * (splits_of_head / CLUSTER)) {
    // Windows begin anywhere; shares of a head begin at the tile of the first key that is seen.
    const int first = sequence.queries > 0 ? sequence.first_key(0) / kTile * kTile : 0;
    const int seen = sequence.queries > 0 ? max(0, sequence.end_key(sequence.queries) - first) : 0;
    splits = max(1, (seen + keys_of_split - 1) / keys_of_split);
    begin = first + split * keys_of_split;
    end = min(first + seen, begin + keys_of_split);
  }
  // Makes the piece of sequence `number` that a slot of a work list has.
  __device__ __forceinline__ Share(const Sequences& of, const ScheduleEntry& entry, int slot,
                                   int number, int kv_head)
      : sequence(number, of), kv_head(kv_head), split(0), splits(1), place(slot) {
    const Demand all(sequence.queries, sequence.keys, window);
    begin = max(number == entry.first ? entry.first_key : all.begin,
                sequence.first_key(0) / kTile * kTile);
    end = number == entry.last ? entry.last_end : all.end;
    if (number == entry.first) {
      split = slot - entry.first_begins;
      splits = entry.first_ends - entry.first_begins + 1;
      place = entry.first_begins;
    } else if (number == entry.last) {
      splits = entry.last_ends - slot + 1;
    }
  }
  // Returns the number of the head among the heads of all sequences.
  __device__ __forceinline__ int head() const { return sequence.number * kv_heads + kv_head; }
  // Returns the entry of the workspace with the sums of the head's splits from CLUSTER * i on. A
  // slot has entries of two sequences: one that goes on in it, and one that begins.
  __device__ __forceinline__ long long entry(int i) const {
    if constexpr (schedule == schedule_none) return place + i;
    return ((place + i) * 2ll + (i == 0 ? 1 : 0)) * kv_heads + kv_head;
  }
  __device__ __forceinline__ int tiles() const {
    return end > begin ? (end - begin + kTile - 1) / kTile : 0;
  }
};

}  // namespace
