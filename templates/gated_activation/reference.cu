#include <kernwright/config.cuh>
#include <kernwright/math/activation_reference.cuh>
#include <kernwright/quantized/row_scale_reference.cuh>

using namespace kernwright;
using namespace kernwright::config;

__device__ Activated activate(double x) {
  if (activation == activation_gelu_tanh) return reference_gelu_tanh(x);
  if (activation == activation_gelu_erf) return reference_gelu_erf(x);
  if (activation == activation_relu) return reference_relu(x);
  return reference_silu(x);
}

// y_reference[rows, columns] = scale * activation(gate) * up, divided by its scale if it is
// quantized. It is not rounded to the result's type, but limited to its range if that type
// saturates.
extern "C" __global__ void gated_activation_reference(KW_PARAMETERS(gated_activation_reference)) {
  const QuotientsReference quotients{quantize == quantize_block ? 128
                                     : quantize == quantize_row ? columns
                                                                : 0,
                                     quantize == quantize_tensor ? *given_scale : 1.0,
                                     scale_least,
                                     y_reference,
                                     y_magnitude,
                                     y_scale_reference,
                                     y_scale_magnitude};
  const auto term = [&](long long i) -> Term {
    if (scale == 0) return {0, 0};
    const long long at = i / columns * 2 * columns + i % columns;
    const bool packed = layout == layout_packed;
    const Activated y = activate(to_float(packed ? x[at] : gate[i]));
    const double factor = static_cast<double>(scale) * to_float(packed ? x[at + columns] : up[i]);
    return {y.value * factor, y.magnitude * fabs(factor)};
  };
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    quotients.write<out_t>(term, row, rows, columns);
  }
}
