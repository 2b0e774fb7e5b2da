#include <kernwright/config.cuh>
#include <kernwright/math/activation_reference.cuh>

using namespace kernwright;
using namespace kernwright::config;

__device__ Activated activate(double x) {
  if (activation == activation_gelu_tanh) return reference_gelu_tanh(x);
  if (activation == activation_gelu_erf) return reference_gelu_erf(x);
  if (activation == activation_relu) return reference_relu(x);
  return reference_silu(x);
}

// y_reference[rows, columns] = scale * activation(gate) * up. It is not rounded to the result's
// type, but limited to its range if that type saturates.
extern "C" __global__ void gated_activation_reference(KW_PARAMETERS(gated_activation_reference)) {
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < rows * columns; i += stride) {
    y_reference[i] = 0;
    y_magnitude[i] = 0;
    if (scale == 0) continue;
    const long long at = i / columns * 2 * columns + i % columns;
    const bool packed = layout == layout_packed;
    const Activated y = activate(to_float(packed ? x[at] : gate[i]));
    const double factor = static_cast<double>(scale) * to_float(packed ? x[at + columns] : up[i]);
    const double limit = out == out_fp8_e4m3 ? 448 : 1e300;
    y_reference[i] = static_cast<float>(smaller(larger(y.value * factor, -limit), limit));
    y_magnitude[i] = static_cast<float>(y.magnitude * fabs(factor));
  }
}
