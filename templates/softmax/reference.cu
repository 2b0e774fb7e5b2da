#include <kernwright/config.cuh>

using namespace kernwright;
using namespace kernwright::config;

__device__ double minus_infinity() { return __longlong_as_double(0xfff0000000000000ll); }
__device__ double total(double a, double b) { return a + b; }

// Reduces over the block of 256 threads. All of them get the result.
__device__ double block_reduce(double part, double (*combine)(double, double)) {
  __shared__ double parts[256];
  parts[threadIdx.x] = part;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      parts[threadIdx.x] = combine(parts[threadIdx.x], parts[threadIdx.x + half]);
    }
    __syncthreads();
  }
  const double all = parts[0];
  __syncthreads();
  return all;
}

// One block per row, all in fp64. With a causal mask the rows are `queries` to a sequence (0: as
// many as columns), whose last sees all columns. y_reference[rows, columns] is the result, not
// rounded to the operation's type; 0 in a row of which nothing is seen, NaN in a row with a NaN. An
// error of the exponent is a relative error of the result, so y_magnitude is y (1 + |v| + |max|).
extern "C" __global__ void softmax_reference(KW_PARAMETERS(softmax_reference)) {
  const long long sequence = queries > 0 ? queries : columns;
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    const long long first = row * columns;
    const long long seen = mask == mask_causal ? columns - sequence + row % sequence + 1 : columns;
    const auto exponent = [&](long long c) -> double {
      if (c >= seen) return minus_infinity();
      double v = scale == 0 ? 0.0 : static_cast<double>(scale) * to_float(x[first + c]);
      if constexpr (mask == mask_additive) v += to_float(bias[first + c]);
      return v;
    };
    double part = minus_infinity();
    for (long long c = threadIdx.x; c < columns; c += 256) part = larger(part, exponent(c));
    const double most = block_reduce(part, larger);
    part = 0;
    for (long long c = threadIdx.x; c < columns; c += 256) {
      const double v = exponent(c);
      if (most != minus_infinity()) part += exp(v - most);
    }
    const double sum = block_reduce(part, total);
    for (long long c = threadIdx.x; c < columns; c += 256) {
      const double v = exponent(c);
      const double y = most == minus_infinity() ? 0.0 : exp(v - most) / sum;
      y_reference[first + c] = static_cast<float>(y);
      y_magnitude[first + c] = y == 0 ? 0.0f : static_cast<float>(y * (1 + fabs(v) + fabs(most)));
    }
  }
}
