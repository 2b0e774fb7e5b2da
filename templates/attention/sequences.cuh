#pragma once

// Which keys a query sees: shared by the reference and the kernels that draw.
#include <kernwright/attention/places.cuh>

namespace kernwright::config {

// The keys [first, end) that a query sees, which may be none. Query i of `queries` has the position
// of key i + keys - queries: the last query sees the last key.
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
