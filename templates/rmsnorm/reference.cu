#include <kernwright/config.cuh>

using namespace kernwright;
using namespace kernwright::config;

// One block of 256 threads per row; the sum of squares and the root are taken in fp64.
// value[rows, columns] is the result, not rounded to the operation's type; magnitude its absolute
// value.
extern "C" __global__ void rmsnorm_reference(const dtype_t* x, const dtype_t* w, float* value,
                                             float* magnitude, long long row_count,
                                             long long column_count, float epsilon) {
  __shared__ double parts[256];
  for (long long row = blockIdx.x; row < row_count; row += gridDim.x) {
    const long long first = row * column_count;
    double sum = 0;
    for (long long c = threadIdx.x; c < column_count; c += 256) {
      const double v = to_float(x[first + c]);
      sum += v * v;
    }
    parts[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
      if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
      __syncthreads();
    }
    const double scale = 1.0 / sqrt(parts[0] / static_cast<double>(column_count) + epsilon);
    for (long long c = threadIdx.x; c < column_count; c += 256) {
      double y = to_float(x[first + c]) * scale;
      if (weight == weight_scale) y *= to_float(w[c]);
      value[first + c] = static_cast<float>(y);
      magnitude[first + c] = static_cast<float>(fabs(y));
    }
    __syncthreads();
  }
}
