#pragma once
// How pointwise kernels share out [rows, columns]: a thread keeps one vector of columns and takes
// it in several rows, so that what belongs to a column is read once and no index is divided per
// element.

namespace kernwright {

// What a thread has of a tile: `Lanes` columns from `column`, in `count` rows from `row`,
// `LineRows` apart. A line is LineRows whole rows of RowVectors vectors each, in Chunks pieces of
// Threads vectors; a tile is one piece of Items lines. LineRows > 1 only where Chunks == 1.
template <int Threads, int Items, int Lanes, int RowVectors, int LineRows, int Chunks>
struct StreamPlace {
  long long row;
  int column;
  int count;

  __device__ __forceinline__ StreamPlace(int tile, long long rows) {
    const int position = tile % Chunks * Threads + threadIdx.x;
    row = static_cast<long long>(tile / Chunks) * (Items * LineRows) + position / RowVectors;
    column = position % RowVectors * Lanes;
    const long long left = position < LineRows * RowVectors ? rows - row : 0;
    count = static_cast<int>(
        left <= 0 ? 0 : ::min((left + LineRows - 1) / LineRows, static_cast<long long>(Items)));
  }
};

}  // namespace kernwright
