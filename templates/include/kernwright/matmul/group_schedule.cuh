#pragma once
// The tiles of a grouped product that a block works on, and their order. Each group has a product
// of its own, whose number of rows is known on the device alone: `ends` are the ends of the groups'
// rows, or `counts` are the numbers of its own places that each group uses.
//
//   one warp      build(table, ends or counts, room), then a barrier of the block
//   whole warps   next() until it returns false; rows(), first_row(), column() and group() describe
//                 the tile of the last call
//
// A tile has up to TileM rows of one group, and TileN columns. The tiles of a group have about the
// same number of rows, so that blocks which take turns have the same work. All tiles are one list:
// group by group, in bands of `band` rows of tiles that are walked column by column. So the weights
// of a group are read by blocks that run at the same time. The ClusterN blocks of a cluster take
// neighbouring columns of the same rows. Clusters walk the list in steps of the grid.

#include <kernwright/config.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/tile/tile_schedule.cuh>

namespace kernwright {

// The rows of all groups, and how many tiles of rows they have, in shared memory.
template <int Groups, int TileM>
class GroupTable {
 public:
  static constexpr int kBytes = (2 * (Groups + 1) * 4 + 15) / 16 * 16;

  // Fills the table at shared address `table`. Run by one warp.
  static __device__ __forceinline__ void build(unsigned table, const int* ends, const int* counts) {
    constexpr int kPerLane = (Groups + 31) / 32;
    const int lane = threadIdx.x % 32, first = lane * kPerLane;
    int rows[kPerLane], end[kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int group = first + i;
      rows[i] = end[i] = 0;
      if (group < Groups) {
        if constexpr (config::layout == config::layout_masked) {
          rows[i] = end[i] = counts[group];
        } else {
          end[i] = ends[group];
          rows[i] = end[i] - (group == 0 ? 0 : ends[group - 1]);
        }
      }
    }
    int tiles = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) tiles += (rows[i] + TileM - 1) / TileM;
    int through = tiles;  // of this lane and those before it
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int other = __shfl_up_sync(~0u, through, distance);
      if (lane >= distance) through += other;
    }
    int before = through - tiles;
    if (lane == 0) {
      store_number(table, 0);
      store_number(table + kEnds, 0);
    }
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      before += (rows[i] + TileM - 1) / TileM;
      if (first + i >= Groups) break;
      store_number(table + (first + i + 1) * 4, before);
      store_number(table + kEnds + (first + i + 1) * 4, end[i]);
    }
  }

  // `room` is the number of places of a group, with layout=masked.
  __device__ __forceinline__ GroupTable(unsigned table, int room) : table_(table), room_(room) {}

  // Returns how many tiles of rows the groups before this one have; `Groups` is behind the last.
  __device__ __forceinline__ int tiles_before(int group) const {
    return load_number(table_ + group * 4);
  }
  // Return the group's first row among all, and the number of its rows.
  __device__ __forceinline__ int first_row(int group) const {
    return kMasked ? group * room_ : end(group - 1);
  }
  __device__ __forceinline__ int rows(int group) const {
    return kMasked ? end(group) : end(group) - end(group - 1);
  }

 private:
  static constexpr bool kMasked = config::layout == config::layout_masked;
  static constexpr unsigned kEnds = (Groups + 1) * 4;

  __device__ __forceinline__ int end(int group) const {
    return load_number(table_ + kEnds + group * 4 + 4);
  }

  unsigned table_;
  int room_;
};

template <int Groups, int TileM, int TileN, int ClusterN = 1>
class GroupSchedule {
 public:
  using Table = GroupTable<Groups, TileM>;
  static constexpr int kTableBytes = Table::kBytes;

  // Fills the table at shared address `table`. Run by one warp.
  static __device__ __forceinline__ void build(unsigned table, const int* ends, const int* counts) {
    Table::build(table, ends, counts);
  }

  // `room` is the number of places of a group, with layout=masked.
  __device__ __forceinline__ GroupSchedule(unsigned table, int n, int band, int room)
      : table_(table, room),
        columns_((n + TileN * ClusterN - 1) / (TileN * ClusterN)),
        band_(band),
        tile_(blockIdx.x / ClusterN),
        tiles_(table_.tiles_before(Groups) * columns_) {}

  // Moves to the next tile; false if there is none. Run by whole warps.
  __device__ __forceinline__ bool next() {
    if (is_last()) return false;
    int rest;
    const int tile_row = fast_divide(tile_, columns_, rest);  // as if a column were a row of tiles
    advance_to(tile_row);
    const int before = table_.tiles_before(group_);
    const int height_of_group = table_.tiles_before(group_ + 1) - before;
    const int begin = table_.first_row(group_), rows_of_group = table_.rows(group_);
    int in_band, in_column;
    const int first = fast_divide(tile_ - before * columns_, band_ * columns_, in_band) * band_;
    const int height = min(height_of_group - first, band_);
    const int column = fast_divide(in_band, height, in_column);
    int unused;
    const int each = fast_divide(rows_of_group + height_of_group - 1, height_of_group, unused);
    const int row = (first + in_column) * each;
    first_row_ = begin + row;
    rows_ = min(each, rows_of_group - row);
    column_ = (column * ClusterN + static_cast<int>(blockIdx.x) % ClusterN) * TileN;
    skip();
    return true;
  }
  // Skips the next tile.
  __device__ __forceinline__ void skip() { tile_ += gridDim.x / ClusterN; }
  // Returns whether the present tile is this block's last.
  __device__ __forceinline__ bool is_last() const { return tile_ >= tiles_; }

  __device__ __forceinline__ int group() const { return group_; }
  // Return the tile's first row among the rows of all groups, and how many it has: 1 to TileM.
  __device__ __forceinline__ int first_row() const { return first_row_; }
  __device__ __forceinline__ int rows() const { return rows_; }
  // Returns the tile's first column, which may be beyond the last.
  __device__ __forceinline__ int column() const { return column_; }

 private:
  // Finds the group of the tile, which is this one or a later one, 32 at a time.
  __device__ __forceinline__ void advance_to(int tile_row) {
    const int lane = threadIdx.x % 32;
    while (true) {
      const int at = min(group_ + 1 + lane, Groups);
      const bool passed = table_.tiles_before(at) <= tile_row && group_ + 1 + lane <= Groups;
      const int steps = __popc(__ballot_sync(~0u, passed));
      group_ += steps;
      if (steps < 32) return;
    }
  }

  const Table table_;
  const int columns_, band_;
  int tile_;
  const int tiles_;
  int group_ = 0, first_row_ = 0, rows_ = 0, column_ = 0;
};

}  // namespace kernwright
