#pragma once
// The activations for references: in fp64, with the magnitude to which the errors of activation.cuh
// are relative. The relative error of exp(e) is the absolute error of e, so the magnitude of a
// value that is made of exp(e) grows with 1 + |e|.

#include <kernwright/math/types.cuh>

namespace kernwright {

struct Activated {
  double value;
  double magnitude;
};

__device__ inline Activated reference_relu(double x) { return {larger(x, 0.0), larger(x, 0.0)}; }

__device__ inline Activated reference_relu_squared(double x) {
  const double y = larger(x, 0.0) * x;
  return {y, y};
}

__device__ inline Activated reference_silu(double x) {
  const double y = x / (1 + exp(-x));
  return {y, fabs(y) * (1 + fabs(x))};
}

__device__ inline Activated reference_gelu_tanh(double x) {
  const double exponent = 2 * sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
  const double y = x / (1 + exp(-exponent));
  return {y, fabs(y) * (1 + fabs(exponent))};
}

__device__ inline Activated reference_gelu_erf(double x) {
  const double z = x / sqrt(2.0);
  return {x / 2 * erfc(-z), fabs(x) / 2 * (1 + fabs(erf(z)))};
}

}  // namespace kernwright
