#pragma once
// Rows that are read by pieces: each thread has some neighbours of a row at once, and the threads
// of a row are neighbours too. So the threads of a group of elements are lanes of one warp, if a
// group is a power of two of pieces.

#include <kernwright/math/reduce.cuh>
#include <kernwright/math/vector.cuh>

namespace kernwright::rows {

// `Lanes` neighbours of a row, read in vectors of `Vector` elements, which a row has as a whole or
// not at all. Elements that it does not have are 0.
template <typename T, int Lanes, int Vector>
struct Piece {
  static_assert(Lanes % Vector == 0);
  static constexpr int kVectors = Lanes / Vector;
  Elements<T, Vector> vector[kVectors];

  __device__ __forceinline__ float operator[](int i) const {
    return vector[i / Vector][i % Vector];
  }

  // Loads from `row`, which has `columns` elements, from `column` on.
  template <Load Hint>
  __device__ __forceinline__ void load(const T* row, int column, int columns) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      vector[i] = {};
      if (column + i * Vector < columns) {
        vector[i] = load_elements<Hint, Vector>(row + column + i * Vector);
      }
    }
  }
  __device__ __forceinline__ void store(T* row, int column, int columns) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (column + i * Vector >= columns) continue;
#pragma unroll
      for (int j = 0; j < Vector / Elements<T, Vector>::kLanes; ++j) {
        kernwright::store<Store::plain>(row + column + i * Vector + j * Elements<T, Vector>::kLanes,
                                        vector[i].part[j]);
      }
    }
  }
  // Makes the piece one that is unpacked anew when it is needed again, instead of being kept
  // unpacked.
  __device__ __forceinline__ void keep_packed() {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
#pragma unroll
      for (auto& part : vector[i].part) hide_from_assembler(part);
    }
  }
  // Adds another piece, and rounds the sums to T.
  __device__ __forceinline__ void add(const Piece& other) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
#pragma unroll
      for (int j = 0; j < Vector / Elements<T, Vector>::kLanes; ++j) {
#pragma unroll
        for (unsigned k = 0; k < sizeof(vector[i].part[j]) / 4; ++k) {
          unsigned& word = vector[i].part[j].word[k];
          word = add_words<T>(word, other.vector[i].part[j].word[k]);
        }
      }
    }
  }
};

// Rounds values and stores them to `row` from `column` on, in vectors of `Vector` elements, of
// which the row has `columns`.
template <Store Hint, int Vector, int Lanes, typename Out>
__device__ __forceinline__ void store_values(Out* row, int column, int columns,
                                             const float (&value)[Lanes]) {
#pragma unroll
  for (int i = 0; i < Lanes; i += Vector) {
    float part[Vector];
#pragma unroll
    for (int j = 0; j < Vector; ++j) part[j] = value[i + j];
    if (column + i < columns) store_elements<Hint>(row + column + i, part);
  }
}

// The part of a group of 128 columns that is a thread's: from `column` on, of a row which has
// columns up to `end`, 0 if there is no such group.
struct GroupPlace {
  long long row;
  int group;
  int column;
  int end;

  // Returns true in one thread of each group.
  __device__ __forceinline__ bool leads() const { return end != 0 && column % 128 == 0; }
};

// Returns the place of the thread's `item`, of `Items`, if neighbouring threads have `Lanes`
// columns each of a group, then the next of the `RowGroups` of a row. The groups of a thread are as
// far apart as a block has groups at once.
template <int Threads, int Items, int Lanes, int RowGroups>
__device__ __forceinline__ GroupPlace group_place(int item, long long rows, int columns) {
  constexpr int kGroups = Threads * Lanes / 128;
  const long long number = static_cast<long long>(blockIdx.x) * (kGroups * Items) + item * kGroups +
                           threadIdx.x * Lanes / 128;
  const long long row = number / RowGroups;
  const int group = static_cast<int>(number % RowGroups);
  return {row, group, group * 128 + static_cast<int>(threadIdx.x) * Lanes % 128,
          row < rows ? columns : 0};
}

// Reduces over the `RowThreads` threads of a row, in a block of `BlockRows` rows: each `Place` once
// in a kernel.
template <int Place, typename Reduction, int RowThreads, int BlockRows>
__device__ __forceinline__ typename Reduction::Value row_reduce(typename Reduction::Value x) {
  constexpr int kWarpThreads = RowThreads < 32 ? RowThreads : 32;
  x = warp_reduce<Reduction, kWarpThreads>(x);
  if constexpr (RowThreads <= 32) {
    return x;
  } else {
    __shared__ typename Reduction::Value parts[BlockRows][RowThreads / 32];
    return combine_warps<Reduction, RowThreads / 32, 1, BlockRows>(x,
                                                                   parts[threadIdx.x / RowThreads]);
  }
}

}  // namespace kernwright::rows
