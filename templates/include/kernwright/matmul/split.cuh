#pragma once
// The places of the columns of a product's result. Without a split all are columns of d. With
// split=qkv the first ldd are columns of d, and d_k and d_v have half of the others each. The rows
// of all three are then contiguous.

#include <kernwright/config.cuh>

namespace kernwright {

constexpr bool kSplit = config::split == config::split_qkv;

// The tensor of a column (0 is d, 1 d_k, 2 d_v), the column's number in it, and the tensor's width.
template <typename Index>
struct Part {
  int tensor;
  Index column, width;
};

// Returns the part that has column `column` of n. The first `first` of these are columns of d.
template <typename Index>
__device__ __forceinline__ Part<Index> part_of(Index column, Index n, Index first) {
  const Index width = (n - first) / 2;
  if (column < first) return {0, column, first};
  if (column < first + width) return {1, column - first, width};
  return {2, column - first - width, width};
}

// A result of n columns. The rows of d begin ldd elements apart.
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
