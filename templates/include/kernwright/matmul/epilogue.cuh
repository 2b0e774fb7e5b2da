#pragma once
// The epilogue of a matrix product, on sums in fp32: activation(alpha * sum + bias[column]) + beta
// * residual[row, column], each part only if the problem's flags ask for it, and then the problem's
// own function, if it has one. Parts that are not asked for leave nothing in the machine code. A
// gated product makes one element of two sums, activation(alpha * gate) * alpha * other. If alpha
// is 0 the operands are not read and their sums are 0; if beta is 0 the residual is not read. With
// scales of rows, the scales of the sum's row of a and row of b take the place of alpha.

#include <kernwright/config.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/matmul/activate.cuh>

namespace kernwright {

constexpr bool kScaling = config::scaling == config::scaling_alpha;
constexpr bool kRowScaled = config::row_scaled;
constexpr bool kBias = config::bias == config::bias_column;
constexpr bool kActivation = config::activation != config::activation_none;
constexpr bool kGated = config::gate == config::gate_stacked;
constexpr bool kResidual = config::residual != config::residual_none;
constexpr bool kFunction = config::epilogue != config::epilogue_none;
constexpr bool kRoundsAll = config::rounds_all;

__device__ __forceinline__ bool reads_operands(float alpha) { return !kScaling || alpha != 0; }
__device__ __forceinline__ float scale(float alpha, float sum) {
  return kScaling ? alpha * sum : sum;
}
// Returns x + factor * addend. The compiler may contract an addition with a multiplication before
// it, and decides for each kernel anew. With `rounds_all` each result is rounded.
__device__ __forceinline__ float plus(float x, float factor, float addend) {
  if constexpr (kRoundsAll) return __fadd_rn(x, __fmul_rn(factor, addend));
  return x + factor * addend;
}
__device__ __forceinline__ float gated(float alpha, float gate, float other) {
  return activate(scale(alpha, gate)) * scale(alpha, other);
}
__device__ __forceinline__ float user_epilogue(float x, long long row, int column) {
  if constexpr (kFunction) return kernwright_epilogue(x, static_cast<int>(row), column);
  return x;
}
__device__ __forceinline__ float residual_factor(float beta) {
  return config::residual == config::residual_scaled ? beta : 1;
}
__device__ __forceinline__ bool reads_residual(float beta) {
  return kResidual && residual_factor(beta) != 0;
}

// The scales of the rows of a, and of all rows of b, in global memory; null if there are none.
struct RowScales {
  const float* a = nullptr;
  const float* b = nullptr;

  __device__ __forceinline__ float applied(float sum, long long row_a, long long row_b) const {
    return sum * __ldg(a + row_a) * __ldg(b + row_b);
  }
};

// The epilogue for sums in registers, with scales, bias and residual in global memory.
class Epilogue {
 public:
  using Element = config::out_t;

  // `bias` has n elements, `residual` m rows of n. Tensors that the problem does not have may be
  // null.
  __device__ Epilogue(float alpha, const Element* bias, float beta, const Element* residual,
                      long long m, int n, const RowScales& scales = {})
      : scales_(scales),
        bias_(bias),
        residual_(residual),
        m_(m),
        n_(n),
        alpha_(alpha),
        beta_(beta) {}

  // Finishes `Count` neighbours of a row, all within m x n; `column` is a multiple of Count.
  template <int Count>
  __device__ __forceinline__ void apply(float (&x)[Count], long long row, int column) const {
#pragma unroll
    for (int i = 0; i < Count; ++i) x[i] = scaled(x[i], row, column + i);
    if constexpr (kBias) add(x, 1, bias_ + column);
#pragma unroll
    for (int i = 0; i < Count; ++i) x[i] = activate(x[i]);
    if (reads_residual(beta_)) add(x, residual_factor(beta_), residual_ + row * n_ + column);
#pragma unroll
    for (int i = 0; i < Count; ++i) x[i] = user_epilogue(x[i], row, column + i);
  }
  __device__ __forceinline__ float apply(float x, long long row, int column) const {
    return apply(x, row, column, addends(row, column));
  }

  // The epilogue in two steps: first the addends of an element, which may be loaded before its sum
  // is known, then the element. Addends are kept as they are in memory, since a conversion waits
  // for the load.
  struct Addends {
    Element bias, residual;
  };
  __device__ __forceinline__ Addends addends(long long row, int column) const {
    Addends addends{};
    if constexpr (kBias) addends.bias = bias_[column];
    if (reads_residual(beta_)) addends.residual = residual_[row * n_ + column];
    return addends;
  }
  __device__ __forceinline__ float apply(float x, long long row, int column,
                                         const Addends& addends) const {
    x = scaled(x, row, column);
    if constexpr (kBias) x = plus(x, 1, converted(addends.bias));
    x = activate(x);
    if (reads_residual(beta_)) x = plus(x, residual_factor(beta_), converted(addends.residual));
    return user_epilogue(x, row, column);
  }

  // Returns an element of a gated product from its sums.
  __device__ __forceinline__ float gated(float gate, float other, long long row, int column) const {
    const float open = activate(scaled(gate, row, column));
    return user_epilogue(open * scaled(other, row, n_ + column), row, column);
  }

  // Prefetches the bias and the residual of a tile into the L2. Run by `Threads` threads, of which
  // this is number `thread`.
  template <int Rows, int Columns, int Threads>
  __device__ __forceinline__ void prefetch(int thread, int row, int column) const {
    constexpr int kLine = 128 / sizeof(Element);
    constexpr int kLines = (Columns + kLine - 1) / kLine;  // of a row
    if constexpr (kBias) {
      const int at = column + thread * kLine;
      if (thread < kLines && at < n_) prefetch_line(bias_ + at);
    }
    if (reads_residual(beta_)) {
#pragma unroll 1
      for (int i = thread; i < Rows * kLines; i += Threads) {
        const int r = row + i / kLines, c = column + i % kLines * kLine;
        if (r < m_ && c < n_) prefetch_line(residual_ + static_cast<long long>(r) * n_ + c);
      }
    }
  }

 private:
  // Returns the scaled sum of a row of a and a row of b.
  __device__ __forceinline__ float scaled(float sum, long long row_a, int row_b) const {
    return kRowScaled ? scales_.applied(sum, row_a, row_b) : scale(alpha_, sum);
  }
  // Keeps the conversion here: the compiler would move it up to the load.
  template <typename T>
  static __device__ __forceinline__ float converted(T x) {
    if constexpr (sizeof(T) == 2) asm volatile("" : "+h"(x.bits));
    return to_float(x);
  }
  template <int Count>
  static __device__ __forceinline__ void add(float (&x)[Count], float factor, const Element* from) {
    const auto packed = load<Load::read_only, Count * sizeof(Element)>(from);
#pragma unroll
    for (int i = 0; i < Count; ++i) x[i] = plus(x[i], factor, lane<Element>(packed, i));
  }

  RowScales scales_;
  const Element* bias_;
  const Element* residual_;
  long long m_;
  int n_;
  float alpha_, beta_;
};

}  // namespace kernwright
