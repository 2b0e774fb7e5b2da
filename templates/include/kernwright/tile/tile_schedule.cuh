#pragma once
// The tiles of a matrix that a block works on, and their order. The clusters of the grid walk the
// tiles of all products in steps of the grid, so a launch may have a cluster for each tile or as
// many as fit the device. The tiles are ordered by bands, of `group` rows of cluster tiles each; a
// band is walked column by column. Tiles that run at the same time then read a nearly square part
// of both operands.
//
// Each thread makes a TileSchedule of its own and calls next() until it returns false. row(),
// column() and product() describe the tile of the last call. All threads of a block see the same
// tiles in the same order.
//
// A tile has TileM x TileN elements. The ClusterM x ClusterN blocks of a cluster, of rank
// m + ClusterM * n, take neighbouring tiles. With `Sharers` a cluster has as many such groups of
// blocks, one after the other, which take the same tiles. The grid is one-dimensional.

namespace kernwright {

// Returns numerator / denominator, exact for quotients below 2^21. Integer division would cost a
// third of a microsecond before the first load.
__device__ __forceinline__ int fast_divide(int numerator, int denominator, int& remainder) {
  int quotient =
      static_cast<int>(__fdividef(static_cast<float>(numerator), static_cast<float>(denominator)));
  remainder = numerator - quotient * denominator;
  if (remainder < 0) {
    --quotient;
    remainder += denominator;
  } else if (remainder >= denominator) {
    ++quotient;
    remainder -= denominator;
  }
  return quotient;
}

template <int TileM, int TileN, int ClusterM = 1, int ClusterN = 1, int Sharers = 1>
class TileSchedule {
 public:
  // Orders the tiles of `products` matrices of m rows and n columns each, one matrix after the
  // other.
  __device__ __forceinline__ TileSchedule(int m, int n, int group, int products = 1)
      : rows_((m + TileM * ClusterM - 1) / (TileM * ClusterM)),
        columns_((n + TileN * ClusterN - 1) / (TileN * ClusterN)),
        group_(group),
        products_(products),
        rank_(blockIdx.x % kCluster),
        tile_(blockIdx.x / (kCluster * Sharers)) {}

  // Moves to the next tile; false if there is none.
  __device__ __forceinline__ bool next() {
    if (is_last()) return false;
    int in_product = tile_, in_band, in_column;
    if (products_ > 1) product_ = fast_divide(tile_, rows_ * columns_, in_product);
    const int first = fast_divide(in_product, group_ * columns_, in_band) * group_;
    const int height = rows_ - first < group_ ? rows_ - first : group_;
    const int column = fast_divide(in_band, height, in_column);
    row_ = ((first + in_column) * ClusterM + rank_m()) * TileM;
    column_ = (column * ClusterN + rank_n()) * TileN;
    skip();
    return true;
  }
  // Skips the next tile.
  __device__ __forceinline__ void skip() { tile_ += gridDim.x / (kCluster * Sharers); }
  // Returns whether the present tile is this block's last.
  __device__ __forceinline__ bool is_last() const { return tile_ >= products_ * rows_ * columns_; }

  // Return the product of the tile, and the row and column of the tile's first element in it. A
  // cluster may overhang the matrix, so that row or column can be beyond it.
  __device__ __forceinline__ int product() const { return product_; }
  __device__ __forceinline__ int row() const { return row_; }
  __device__ __forceinline__ int column() const { return column_; }

  // Return this block's place in its cluster.
  __device__ __forceinline__ int rank_m() const { return rank_ % ClusterM; }
  __device__ __forceinline__ int rank_n() const { return rank_ / ClusterM; }

 private:
  static constexpr int kCluster = ClusterM * ClusterN;

  const int rows_, columns_, group_, products_, rank_;
  int tile_, product_ = 0, row_ = 0, column_ = 0;
};

}  // namespace kernwright
