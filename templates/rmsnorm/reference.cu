#include <kernwright/config.cuh>
#include <kernwright/quantized/row_scale_reference.cuh>

using namespace kernwright;
using namespace kernwright::config;

// One block of 256 threads per row; the sum of squares and the root are taken in fp64.
// y_reference[rows, columns] is the result, not rounded to the operation's type; y_magnitude its
// absolute value. The kernel normalises x + r as it is written, rounded; sum_reference is not
// rounded. Quantized results are divided by their scale.
extern "C" __global__ void rmsnorm_reference(KW_PARAMETERS(rmsnorm_reference)) {
  __shared__ double parts[256];
  const auto element = [&](long long i) {
    if constexpr (residual == residual_add) {
      return to_float(from_float<dtype_t>(to_float(x[i]) + to_float(r[i])));
    } else {
      return to_float(x[i]);
    }
  };
  const QuotientsReference quotients{quantize == quantize_block ? 128
                                     : quantize == quantize_row ? columns
                                                                : 0,
                                     quantize == quantize_tensor ? *given_scale : 1.0,
                                     scale_least,
                                     y_reference,
                                     y_magnitude,
                                     y_scale_reference,
                                     y_scale_magnitude};
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    const long long first = row * columns;
    double squares = 0;
    for (long long c = threadIdx.x; c < columns; c += 256) {
      const double v = element(first + c);
      squares += v * v;
    }
    parts[threadIdx.x] = squares;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
      if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
      __syncthreads();
    }
    const double factor = scale / sqrt(parts[0] / static_cast<double>(columns) + eps);
    const auto term = [&](long long i) -> Term {
      if (scale == 0) return {0, 0};
      const double y =
          element(i) * factor * (weight == weight_scale ? to_float(w[i - first]) : 1.0);
      return {y, fabs(y)};
    };
    quotients.write<out_t>(term, row, rows, columns);
    if constexpr (residual == residual_add) {
      for (long long i = first + threadIdx.x; i < first + columns; i += 256) {
        sum_reference[i] = to_float(x[i]) + to_float(r[i]);
        sum_magnitude[i] = fabsf(to_float(x[i])) + fabsf(to_float(r[i]));
      }
    }
    __syncthreads();
  }
}
