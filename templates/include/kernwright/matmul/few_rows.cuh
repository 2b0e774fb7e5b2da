#pragma once
// The result of a product with one operand of few rows. Kernels call that operand a, of m rows, and
// the other one b, of n rows. With config::TRANSPOSED these are the problem's b and a, and d is [n,
// m]. Rows of d begin `ldd` elements apart. d_k and d_v are used if the result is split
// (split.cuh).

#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/matmul/epilogue.cuh>
#include <kernwright/matmul/split.cuh>

namespace kernwright {

class FewRows {
 public:
  using Element = config::out_t;
  using Addends = Epilogue::Addends;
  static constexpr bool kTransposed = config::TRANSPOSED;

  // `scales` belong to the problem's a and b.
  __device__ FewRows(Element* d, float alpha, const Element* bias, float beta,
                     const Element* residual, int m, int n, int ldd, Element* d_k, Element* d_v,
                     const RowScales& scales = {})
      : epilogue_(alpha, bias, beta, residual, kTransposed ? n : m, kTransposed ? m : n, scales),
        output_{d, d_k, d_v, kTransposed ? m : n, ldd},
        m_(m),
        n_(n) {}

  __device__ __forceinline__ bool has(int row_a, int row_b) const {
    return row_a < m_ && row_b < n_;
  }
  // Returns the finished element of a row of a and a row of b, from its sum x; 0 if there are no
  // such rows. With a gate, x is the sum of the gate and `other` the sum that it opens.
  __device__ __forceinline__ float finished(int row_a, int row_b, float x, float other) const {
    return finished(row_a, row_b, x, other, addends(row_a, row_b));
  }
  // Returns the addends of that element, which may be loaded before its sum is known; none if there
  // are no such rows.
  __device__ __forceinline__ Addends addends(int row_a, int row_b) const {
    if (kGated || !has(row_a, row_b)) return {};
    return kTransposed ? epilogue_.addends(row_b, row_a) : epilogue_.addends(row_a, row_b);
  }
  // Returns the address of that element.
  __device__ __forceinline__ Element* at(int row_a, int row_b) const {
    return kTransposed ? output_.at(row_b, row_a) : output_.at(row_a, row_b);
  }
  // Finishes, rounds and stores that element.
  __device__ __forceinline__ void store(int row_a, int row_b, float x, float other) const {
    store(row_a, row_b, x, other, addends(row_a, row_b));
  }
  __device__ __forceinline__ void store(int row_a, int row_b, float x, float other,
                                        const Addends& addends) const {
    if (!has(row_a, row_b)) return;
    *at(row_a, row_b) = from_float<Element>(finished(row_a, row_b, x, other, addends));
  }
  // Returns whether each `count` rows of b, a power of two, are aligned neighbours in d.
  __device__ __forceinline__ bool in_groups_of(int count) const {
    const int widths = kSplit ? output_.ldd | (output_.n - output_.ldd) / 2 : n_ | output_.ldd;
    return !kTransposed && widths % count == 0;
  }

  // Prefetches the bias and the residual of a tile of d into the L2. Run by `Threads` threads, of
  // which this is number `thread`.
  template <int RowsA, int RowsB, int Threads>
  __device__ __forceinline__ void prefetch(int thread, int row_a, int row_b) const {
    if constexpr (kTransposed) {
      epilogue_.prefetch<RowsB, RowsA, Threads>(thread, row_b, row_a);
    } else {
      epilogue_.prefetch<RowsA, RowsB, Threads>(thread, row_a, row_b);
    }
  }

 private:
  __device__ __forceinline__ float finished(int row_a, int row_b, float x, float other,
                                            const Addends& addends) const {
    if (!has(row_a, row_b)) return 0;
    const long long row = kTransposed ? row_b : row_a;
    const int column = kTransposed ? row_a : row_b;
    return kGated ? epilogue_.gated(x, other, row, column)
                  : epilogue_.apply(x, row, column, addends);
  }

  Epilogue epilogue_;
  Output<int> output_;
  int m_, n_;
};

}  // namespace kernwright
