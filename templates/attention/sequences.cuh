#pragma once

// Where sequences, tokens and keys lie: shared by the reference and the kernels that draw.
#include <kernwright/config.cuh>

namespace kernwright::config {

// Where the elements of a head at a token begin. An entry (a sequence, a page, or all of a ragged
// batch) has `tokens` of `all_heads` heads with `size` elements; tokens lie `pitch` apart.
__device__ inline long long place_of(long long entry, long long token, long long head,
                                     long long tokens, long long all_heads, long long size,
                                     long long pitch) {
  return layout == layout_bshd ? (entry * tokens + token) * pitch + head * size
                               : ((entry * all_heads + head) * tokens + token) * pitch;
}

// The keys [first, end) that a query sees, which may be none. Query i of `queries` stands where key
// i + keys - queries does: the last query sees the last key.
struct Seen {
  long long first, end;
};
__device__ inline Seen seen_by(long long i, long long queries, long long keys, long long width) {
  const long long position = i + keys - queries;
  Seen seen{0, keys};
  if (mask != mask_none) seen.end = position + 1;
  if (mask == mask_window && position - width + 1 > 0) seen.first = position - width + 1;
  return seen;
}

}  // namespace kernwright::config
