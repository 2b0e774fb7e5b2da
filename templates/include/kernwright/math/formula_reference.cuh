#pragma once
// Formulas for references: in fp64, each value with the error that fp32 arithmetic may have made so
// far, in units of 2^-24. An operation multiplies the errors of its operands by its derivatives and
// adds its own rounding error. So a result that cancelled has a wide bound, and others do not.

#include <kernwright/math/activation_reference.cuh>

namespace kernwright {

struct Traced {
  double value;
  double error;

  __device__ Traced(double x) : value(x), error(0) {}
  __device__ Traced(double x, double e) : value(x), error(e) {}
};

__device__ inline Traced rounded(double x, double passed) { return {x, passed + fabs(x)}; }

__device__ inline Traced operator-(const Traced& x) { return {-x.value, x.error}; }
__device__ inline Traced operator+(const Traced& x, const Traced& y) {
  return rounded(x.value + y.value, x.error + y.error);
}
__device__ inline Traced operator-(const Traced& x, const Traced& y) { return x + -y; }
__device__ inline Traced operator*(const Traced& x, const Traced& y) {
  return rounded(x.value * y.value, fabs(x.value) * y.error + fabs(y.value) * x.error);
}
__device__ inline Traced operator/(const Traced& x, const Traced& y) {
  const double quotient = x.value / y.value;
  return rounded(quotient, (x.error + fabs(quotient) * y.error) / fabs(y.value));
}

struct TracedMath {
  using Value = Traced;

  // No activation has a steeper slope than 1.13.
  static __device__ Traced activated(const Traced& x, const Activated& y) {
    return {y.value, 1.13 * x.error + y.magnitude};
  }

  static __device__ Traced abs(const Traced& x) { return {fabs(x.value), x.error}; }
  static __device__ Traced exp(const Traced& x) {
    const double y = ::exp(x.value);
    return rounded(y, y * (fabs(x.value) + x.error));
  }
  static __device__ Traced gelu_erf(const Traced& x) {
    return activated(x, reference_gelu_erf(x.value));
  }
  static __device__ Traced gelu_tanh(const Traced& x) {
    return activated(x, reference_gelu_tanh(x.value));
  }
  static __device__ Traced log(const Traced& x) {
    return rounded(::log(x.value), x.error / fabs(x.value));
  }
  static __device__ Traced max(const Traced& x, const Traced& y) {
    return {larger(x.value, y.value), larger(x.error, y.error)};
  }
  static __device__ Traced min(const Traced& x, const Traced& y) {
    return {smaller(x.value, y.value), larger(x.error, y.error)};
  }
  static __device__ Traced relu(const Traced& x) { return {larger(x.value, 0.0), x.error}; }
  static __device__ Traced sigmoid(const Traced& x) {
    const double y = 1 / (1 + ::exp(-x.value));
    return rounded(y, y * (1 - y) * (fabs(x.value) + x.error));
  }
  static __device__ Traced silu(const Traced& x) { return activated(x, reference_silu(x.value)); }
  static __device__ Traced sqrt(const Traced& x) {
    const double y = ::sqrt(x.value);
    return rounded(y, y == 0 ? ::sqrt(x.error * 0x1p-24) * 0x1p24 : x.error / (2 * y));
  }
  static __device__ Traced tanh(const Traced& x) {
    const double y = ::tanh(x.value);
    return rounded(y, (1 - y * y) * x.error);
  }
};

}  // namespace kernwright
