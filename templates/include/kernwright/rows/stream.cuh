#pragma once
// How pointwise kernels divide [rows, columns] among threads: a thread keeps one vector of columns
// and takes it in several rows. So values that belong to a column are read once, and no index is
// divided for each element.

namespace kernwright {

// A thread's part of a tile: `Lanes` columns from `column` on, in `count` rows from `row` on that
// are LineRows apart. A line is LineRows whole rows of RowVectors vectors each, in Chunks pieces of
// Threads vectors. A tile is one piece of Items lines. LineRows > 1 is for Chunks == 1 alone.
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
