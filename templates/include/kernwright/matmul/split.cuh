#pragma once
// Where the columns of a product's result lie: all of them in d or, with split=qkv, in d and behind
// that in d_k and d_v, which are equally wide. A split result is contiguous: d is ldd columns wide.

#include <kernwright/config.cuh>

namespace kernwright {

constexpr bool kSplit = config::split == config::split_qkv;

// Of d, d_k and d_v, 0 to 2, the tensor that a column belongs to, and which of its columns that is.
template <typename Index>
struct Part {
  int tensor;
  Index column, width;
};

// Of column `column` of n, the first `first` of which are d's.
template <typename Index>
__device__ __forceinline__ Part<Index> part_of(Index column, Index n, Index first) {
  const Index width = (n - first) / 2;
  if (column < first) return {0, column, first};
  if (column < first + width) return {1, column - first, width};
  return {2, column - first - width, width};
}

// A result of n columns. Rows of d begin ldd elements apart.
template <typename Index>
struct Output {
  using Element = config::out_t;

  Element* d;
  Element* d_k;
  Element* d_v;
  Index n, ldd;

  __device__ __forceinline__ Element* at(long long row, Index column) const {
    if constexpr (kSplit) {
      const Part<Index> part = part_of(column, n, ldd);
      Element* const tensor = part.tensor == 0 ? d : part.tensor == 1 ? d_k : d_v;
      return tensor + (row * part.width + part.column);
    }
    return d + (row * ldd + column);
  }
};

}  // namespace kernwright
