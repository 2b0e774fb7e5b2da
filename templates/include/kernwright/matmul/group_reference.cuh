#pragma once
// The rows of groups, for references of grouped products.

#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>

namespace kernwright {

// A group's rows among all places for rows, [first, first + count).
struct GroupRows {
  long long first, count;
};

__device__ inline GroupRows rows_of(long long group, const int* ends, const int* counts,
                                    long long room) {
  if (config::layout == config::layout_masked) return {group * room, counts[group]};
  const long long first = group == 0 ? 0 : ends[group - 1];
  return {first, ends[group] - first};
}

// Returns the group of a tile of `height` rows, or `groups`. Then `tile` counts in that group.
__device__ inline long long group_of_tile(long long& tile, long long groups, long long height,
                                          const int* ends, const int* counts, long long room) {
  long long group = 0;
  for (; group < groups; ++group) {
    const long long tiles = (rows_of(group, ends, counts, room).count + height - 1) / height;
    if (tile < tiles) break;
    tile -= tiles;
  }
  return group;
}

// Gives the places of d that belong to no group, of `places`, the content that they have.
__device__ inline void keep_places(const config::out_t* d, float* reference, float* magnitude,
                                   const int* ends, const int* counts, long long groups,
                                   long long places, long long room, long long n) {
  const bool is_masked = config::layout == config::layout_masked;
  const long long used = is_masked ? 0 : ends[groups - 1];
  for (long long place = blockIdx.x; place < places; place += gridDim.x) {
    const bool owned = is_masked ? place % room < counts[place / room] : place < used;
    for (long long c = threadIdx.x; c < n && !owned; c += blockDim.x) {
      reference[place * n + c] = to_float(d[place * n + c]);
      magnitude[place * n + c] = 0;
    }
  }
}

}  // namespace kernwright
