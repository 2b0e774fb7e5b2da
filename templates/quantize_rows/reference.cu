#include <kernwright/config.cuh>
#include <kernwright/quantized/row_scale_reference.cuh>

using namespace kernwright;
using namespace kernwright::config;

// Quantizes a row in each block of 256 threads. q_reference[rows, columns] is x divided by the
// scale, in fp64 and not rounded; scale_reference[groups, rows] has the scales.
extern "C" __global__ void quantize_rows_reference(KW_PARAMETERS(quantize_rows_reference)) {
  const QuotientsReference quotients{scaling == scaling_block ? 128 : columns,
                                     1,
                                     scale_least,
                                     q_reference,
                                     q_magnitude,
                                     scale_reference,
                                     scale_magnitude};
  const auto term = [&](long long i) -> Term {
    const double value = to_float(x[i]);
    return {value, fabs(value)};
  };
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    quotients.write<out_t>(term, row, rows, columns);
  }
}
