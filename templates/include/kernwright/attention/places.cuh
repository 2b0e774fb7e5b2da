#pragma once
// The places of tokens in memory: shared by the references of attention and of the operations
// beside it, and by the kernels that draw their inputs.

#include <kernwright/config.cuh>

namespace kernwright::config {

// Returns the first element of a head at a token. An entry (a sequence, a page, or all of a ragged
// batch) has `tokens` tokens of `all_heads` heads with `size` elements; tokens are `pitch` apart.
__device__ inline long long place_of(long long entry, long long token, long long head,
                                     long long tokens, long long all_heads, long long size,
                                     long long pitch) {
  return layout == layout_bshd ? (entry * tokens + token) * pitch + head * size
                               : ((entry * all_heads + head) * tokens + token) * pitch;
}

}  // namespace kernwright::config
