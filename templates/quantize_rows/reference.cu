#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>

using namespace kernwright;
using namespace kernwright::config;

// Quantizes a group of a row in each block of 256 threads. q_reference[rows, columns] is x divided
// by the scale, in fp64 and not rounded; scale_reference[groups, rows] has the scales.
extern "C" __global__ void quantize_rows_reference(KW_PARAMETERS(quantize_rows_reference)) {
  __shared__ float parts[256];
  const long long group = scaling == scaling_block ? 128 : columns;
  const float end = out == out_int8 ? 127.0f : 448.0f;
  for (long long i = blockIdx.x; i < rows * groups; i += gridDim.x) {
    const long long row = i / groups, first = i % groups * group;
    const long long last = first + group < columns ? first + group : columns;
    float most = 0;
    for (long long c = first + threadIdx.x; c < last; c += 256) {
      most = larger(most, fabsf(to_float(x[row * columns + c])));
    }
    parts[threadIdx.x] = most;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
      if (threadIdx.x < half) {
        parts[threadIdx.x] = larger(parts[threadIdx.x], parts[threadIdx.x + half]);
      }
      __syncthreads();
    }
    const float of_group = larger(parts[0] / end, scale_least);
    for (long long c = first + threadIdx.x; c < last; c += 256) {
      const double code = static_cast<double>(to_float(x[row * columns + c])) / of_group;
      q_reference[row * columns + c] = static_cast<float>(code);
      q_magnitude[row * columns + c] = static_cast<float>(fabs(code));
    }
    if (threadIdx.x == 0) {
      scale_reference[i % groups * rows + row] = of_group;
      scale_magnitude[i % groups * rows + row] = of_group;
    }
    __syncthreads();
  }
}
