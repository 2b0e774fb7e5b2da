#include <kernwright/config.cuh>
#include <kernwright/math/activation_reference.cuh>

using namespace kernwright;
using namespace kernwright::config;

__device__ Activated activate(double x) {
  if (activation == activation_none) return {x, fabs(x)};
  if (activation == activation_gelu_erf) return reference_gelu_erf(x);
  if (activation == activation_silu) return reference_silu(x);
  if (activation == activation_relu) return reference_relu(x);
  if (activation == activation_relu_squared) return reference_relu_squared(x);
  return reference_gelu_tanh(x);
}

// y_reference[rows, columns] = activation(x + b) + r, not rounded to the result's type. x + b is
// rounded once, and the magnitude of the activation covers that.
extern "C" __global__ void bias_activation_reference(KW_PARAMETERS(bias_activation_reference)) {
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < rows * columns; i += stride) {
    const Activated y = activate(static_cast<double>(to_float(x[i])) + to_float(bias[i % columns]));
    const double added = config::residual == residual_add ? to_float(residual[i]) : 0.0;
    y_reference[i] = static_cast<float>(y.value + added);
    y_magnitude[i] = static_cast<float>(y.magnitude + fabs(added));
  }
}
