#pragma once

// Which keys a query sees, and the places of a bias: shared by the reference and the kernels that
// draw.
#include <kernwright/attention/places.cuh>

namespace kernwright::config {

// The keys [first, end) that a query sees, which may be none. Query i of `queries` has the position
// of key i + keys - queries: the last query sees the last key. With mask=causal_first it has the
// position of key i.
struct Seen {
  long long first, end;
};
__device__ inline long long position_of(long long i, long long queries, long long keys) {
  return mask == mask_causal_first ? i : i + keys - queries;
}
__device__ inline Seen seen_by(long long i, long long queries, long long keys, long long width) {
  const long long position = position_of(i, queries, keys);
  Seen seen{0, keys};
  if (mask != mask_none) seen.end = min(keys, position + 1);
  if (mask == mask_window && position - width + 1 > 0) seen.first = position - width + 1;
  return seen;
}

// The rows of a bias, one for each sequence, head and query, or one for all of them.
struct BiasRows {
  long long sequences, heads, queries;
  long long sequence_pitch, head_pitch, query_pitch;

  // Returns the first element of a row.
  __device__ long long place(long long sequence, long long head, long long query) const {
    return (sequences == 1 ? 0 : sequence * sequence_pitch) + (heads == 1 ? 0 : head * head_pitch) +
           (queries == 1 ? 0 : query * query_pitch);
  }
};

// The largest additive bias that hides a key: in base 2 it is below all numbers of fp32.
constexpr double kHidingBias = -0x1p128 * 0.69314718055994530942;

}  // namespace kernwright::config
