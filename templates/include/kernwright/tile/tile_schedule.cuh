#pragma once
// Which tiles of a matrix a block works on, and in which order. The grid's clusters walk the tiles
// of all products in steps of the grid, so a launch may have a cluster for each tile or as many as
// fit the device. Neighbouring clusters take the tiles of a band: `group` rows of cluster tiles,
// column by column. What is under way at one time then reads a nearly square part of both operands.
//
// Every thread that needs to know makes a TileSchedule of its own and calls next() until it is
// false; row(), column() and product() are those of the last next(). Roles that share a block see
// the same tiles in the same order.
//
// A tile has TileM x TileN elements, and the ClusterM x ClusterN blocks of a cluster, of rank
// m + ClusterM * n, take neighbouring ones. The grid is one-dimensional.

namespace kernwright {

// Exact for quotients below 2^21; integer division would cost a third of a microsecond before the
// first load.
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

template <int TileM, int TileN, int ClusterM = 1, int ClusterN = 1>
class TileSchedule {
 public:
  // Of `products` matrices of m rows and n columns each. A product's tiles come one behind the
  // other; where there is one product, and the compiler knows, nothing is left of them.
  __device__ __forceinline__ TileSchedule(int m, int n, int group, int products = 1)
      : rows_((m + TileM * ClusterM - 1) / (TileM * ClusterM)),
        columns_((n + TileN * ClusterN - 1) / (TileN * ClusterN)),
        group_(group),
        products_(products),
        rank_(blockIdx.x % kCluster),
        tile_(blockIdx.x / kCluster) {}

  // Moves to the next tile.
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
  // Leaves the next tile out.
  __device__ __forceinline__ void skip() { tile_ += gridDim.x / kCluster; }
  // Whether no tile is left behind the present one.
  __device__ __forceinline__ bool is_last() const { return tile_ >= products_ * rows_ * columns_; }

  // The product of the tile, and the tile's first element in it. Clusters may overhang the matrix:
  // such a tile's first row or column can lie beyond it.
  __device__ __forceinline__ int product() const { return product_; }
  __device__ __forceinline__ int row() const { return row_; }
  __device__ __forceinline__ int column() const { return column_; }

  // This block's place in its cluster.
  __device__ __forceinline__ int rank_m() const { return rank_ % ClusterM; }
  __device__ __forceinline__ int rank_n() const { return rank_ / ClusterM; }

 private:
  static constexpr int kCluster = ClusterM * ClusterN;

  const int rows_, columns_, group_, products_, rank_;
  int tile_, product_ = 0, row_ = 0, column_ = 0;
};

}  // namespace kernwright
