#include <kernwright/config.cuh>

using namespace kernwright;
using namespace kernwright::config;

constexpr bool kMax = kind == kind_max;

__device__ double minus_infinity() { return __longlong_as_double(0xfff0000000000000ll); }
__device__ double combine(double a, double b) { return kMax ? larger(a, b) : a + b; }

// Computes one result in each block of 1024 threads, in fp64. y_reference[segment_count] is the
// result over segment_size consecutive elements, not rounded to the output's type. y_magnitude is
// the same for the absolute terms, or for the largest element its absolute value.
extern "C" __global__ void reduce_reference(KW_PARAMETERS(reduce_reference)) {
  __shared__ double values[1024];
  __shared__ double magnitudes[1024];
  const int thread = threadIdx.x;
  for (long long segment = blockIdx.x; segment < segment_count; segment += gridDim.x) {
    double sum = kMax ? minus_infinity() : 0;
    double terms = 0;
    for (long long i = thread; i < segment_size; i += 1024) {
      const double v = to_float(x[segment * segment_size + i]);
      const double term = kind == kind_sum_squares ? v * v : v;
      sum = combine(sum, term);
      terms += fabs(term);
    }
    values[thread] = sum;
    magnitudes[thread] = terms;
    __syncthreads();
    for (int half = 512; half > 0; half /= 2) {
      if (thread < half) {
        values[thread] = combine(values[thread], values[thread + half]);
        magnitudes[thread] += magnitudes[thread + half];
      }
      __syncthreads();
    }
    if (thread == 0) {
      const double count = kind == kind_mean ? static_cast<double>(segment_size) : 1;
      y_reference[segment] = static_cast<float>(values[0] / count);
      y_magnitude[segment] = static_cast<float>(kMax ? fabs(values[0]) : magnitudes[0] / count);
    }
    __syncthreads();
  }
}
