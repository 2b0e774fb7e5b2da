#pragma once

// Which keys a query sees: shared by the reference and the kernels that draw.
#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>

namespace kernwright::config {

// The flag `cache`, whose name the tensor takes in a kernel.
constexpr int cache_layout = cache;

// Returns the end of the keys that query i of `queries` sees: the last query sees the last key.
__device__ inline long long end_of_query(long long i, long long queries, long long keys) {
  return mask == mask_none ? keys : max(0ll, min(keys, i + keys - queries + 1));
}

}  // namespace kernwright::config
