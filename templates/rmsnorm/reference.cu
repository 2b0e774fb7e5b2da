#include <kernwright/config.cuh>

using namespace kernwright;
using namespace kernwright::config;

// One block of 256 threads per row; the sum of squares and the root are taken in fp64.
// y_reference[rows, columns] is the result, not rounded to the operation's type; y_magnitude its
// absolute value. The kernel normalises x + r as it is written, rounded; sum_reference is not
// rounded.
extern "C" __global__ void rmsnorm_reference(KW_PARAMETERS(rmsnorm_reference)) {
  __shared__ double parts[256];
  const auto element = [&](long long i) {
    if constexpr (residual == residual_add) {
      return to_float(from_float<dtype_t>(to_float(x[i]) + to_float(r[i])));
    } else {
      return to_float(x[i]);
    }
  };
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
    for (long long c = threadIdx.x; c < columns; c += 256) {
      const long long i = first + c;
      double y = 0;
      if (scale != 0) y = element(i) * factor * (weight == weight_scale ? to_float(w[c]) : 1.0);
      y_reference[i] = static_cast<float>(y);
      y_magnitude[i] = static_cast<float>(fabs(y));
      if constexpr (residual == residual_add) {
        sum_reference[i] = to_float(x[i]) + to_float(r[i]);
        sum_magnitude[i] = fabsf(to_float(x[i])) + fabsf(to_float(r[i]));
      }
    }
    __syncthreads();
  }
}
