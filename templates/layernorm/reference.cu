#include <kernwright/config.cuh>
#include <kernwright/quantized/row_scale_reference.cuh>

using namespace kernwright;
using namespace kernwright::config;

// Returns the sum over the block of 256 threads, to all of them.
__device__ double block_sum(double part) {
  __shared__ double parts[256];
  parts[threadIdx.x] = part;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  const double sum = parts[0];
  __syncthreads();
  return sum;
}

// One block per row; mean, variance and root are taken in fp64, in two passes. y_reference[rows,
// columns] is the result, not rounded to the operation's type; y_magnitude the sum of the absolute
// values of its terms x scale w, all terms of the mean times scale w, and b. The kernel normalises
// x + r as it is written, rounded; sum_reference is not rounded. Quantized results are divided by
// their scale.
extern "C" __global__ void layernorm_reference(KW_PARAMETERS(layernorm_reference)) {
  const auto element = [&](long long i) -> double {
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
  const auto count = static_cast<double>(columns);
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    const long long first = row * columns;
    double part = 0;
    double absolute = 0;
    for (long long c = threadIdx.x; c < columns; c += 256) {
      part += element(first + c);
      absolute += fabs(element(first + c));
    }
    const double mean = block_sum(part) / count;
    const double mean_terms = block_sum(absolute) / count;
    part = 0;
    for (long long c = threadIdx.x; c < columns; c += 256) {
      const double d = element(first + c) - mean;
      part += d * d;
    }
    const double scale = 1.0 / sqrt(block_sum(part) / count + eps);
    const auto term = [&](long long i) -> Term {
      const double factor = weight == weight_scale ? scale * to_float(w[i - first]) : scale;
      const double shift = bias == bias_add ? to_float(b[i - first]) : 0.0;
      return {(element(i) - mean) * factor + shift,
              (fabs(element(i)) + mean_terms) * fabs(factor) + fabs(shift)};
    };
    quotients.write<out_t>(term, row, rows, columns);
    if constexpr (residual == residual_add) {
      for (long long i = first + threadIdx.x; i < first + columns; i += 256) {
        sum_reference[i] = to_float(x[i]) + to_float(r[i]);
        sum_magnitude[i] = fabsf(to_float(x[i])) + fabsf(to_float(r[i]));
      }
    }
  }
}
