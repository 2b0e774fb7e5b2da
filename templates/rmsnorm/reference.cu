#include <kernwright/config.cuh>

using namespace kernwright;
using namespace kernwright::config;

// One block of 256 threads per row; the sum of squares and the root are taken in fp64. value[rows,
// columns] is the result, not rounded to the operation's type; magnitude its absolute value. The
// kernel normalises x + r as it is written, rounded; sum_value is not rounded.
extern "C" __global__ void rmsnorm_reference(const dtype_t* x, const dtype_t* r, const dtype_t* w,
                                             float* value, float* magnitude, float* sum_value,
                                             float* sum_magnitude, long long row_count,
                                             long long column_count, float epsilon, float scale) {
  __shared__ double parts[256];
  const auto element = [&](long long i) {
    if constexpr (residual == residual_add) {
      return to_float(from_float<dtype_t>(to_float(x[i]) + to_float(r[i])));
    } else {
      return to_float(x[i]);
    }
  };
  for (long long row = blockIdx.x; row < row_count; row += gridDim.x) {
    const long long first = row * column_count;
    double squares = 0;
    for (long long c = threadIdx.x; c < column_count; c += 256) {
      const double v = element(first + c);
      squares += v * v;
    }
    parts[threadIdx.x] = squares;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
      if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
      __syncthreads();
    }
    const double factor = scale / sqrt(parts[0] / static_cast<double>(column_count) + epsilon);
    for (long long c = threadIdx.x; c < column_count; c += 256) {
      const long long i = first + c;
      double y = 0;
      if (scale != 0) y = element(i) * factor * (weight == weight_scale ? to_float(w[c]) : 1.0);
      value[i] = static_cast<float>(y);
      magnitude[i] = static_cast<float>(fabs(y));
      if constexpr (residual == residual_add) {
        sum_value[i] = to_float(x[i]) + to_float(r[i]);
        sum_magnitude[i] = fabsf(to_float(x[i])) + fabsf(to_float(r[i]));
      }
    }
    __syncthreads();
  }
}
