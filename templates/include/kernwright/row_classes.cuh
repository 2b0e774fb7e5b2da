#pragma once
// Matrices of 16-bit elements whose rows are no multiple of 16 bytes, as TMA wants them. The rows r
// with r % Classes == c are a matrix of their own with a pitch of Classes rows, and for Classes = 8
// / gcd(columns, 8), or any multiple, that pitch fits: a tensor map per class ("classes" in the
// manifest). A tile that is loaded class by class has its rows in another order than the matrix,
// and what is multiplied from it has them too.

namespace kernwright {

// The x of a class's column 0: the elements between its map's start and its first row.
__device__ constexpr int class_shift(unsigned row_class, unsigned columns) {
  return static_cast<int>(row_class * columns % 8);
}

// Row `place` of a tile of `Rows` rows, as loaded: its class, and its row in the class's map beyond
// the tile's first. It is row `Classes * row + row_class` of the tile in the matrix's order.
template <int Classes, int Rows>
struct ClassRow {
  int row_class, row;
  __device__ constexpr explicit ClassRow(int place)
      : row_class(place / (Rows / Classes)), row(place % (Rows / Classes)) {}
};

// The accumulators of a wgmma whose columns come class by class hold runs of 2 * Classes columns
// that are neighbours in the matrix: run (h, r) has those from Classes * (8 * h + 2 * (lane % 4))
// on, in row lane / 4 + 8 * r. This is the register of element i in the order h, r, column.
template <int Classes, int Columns>
__device__ constexpr int class_register(int i) {
  const int column = i % (2 * Classes), half = i / (2 * Classes) % 2, run = i / (4 * Classes);
  return column % Classes * (Columns / Classes / 2) + 4 * run + 2 * half + column / Classes;
}

}  // namespace kernwright
