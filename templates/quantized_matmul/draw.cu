#include <kernwright/quantized/drawing.cuh>

using namespace kernwright;
using namespace kernwright::config;

struct Draw {
  WeightDraw weights;
  long long m, lda;

  // Returns element `i` of tensor number `stream`.
  __device__ float number(int stream, long long i) const {
    const unsigned long long any =
        hash_at(hash_at(weights.seed, 10 + stream), static_cast<unsigned long long>(i));
    if (weights.set == kExactWeights) return static_cast<float>(any % 7) - 3;
    const long long row = i / weights.k;
    if (weights.set == kNanWeights && row % 3 == 1 && any % 61 == 0) return NAN;
    return normal(any);
  }
  __device__ void fill(dtype_t* a, out_t* bias, out_t* residual) const {
    const long long start = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long i = start; a && i < m * weights.k; i += stride) {
      a[i / weights.k * lda + i % weights.k] = from_float<dtype_t>(number(0, i));
    }
    for (long long i = start; bias && i < weights.n; i += stride) {
      bias[i] = from_float<out_t>(number(1, i));
    }
    for (long long i = start; residual && i < m * weights.n; i += stride) {
      residual[i] = from_float<out_t>(number(2, i));
    }
  }
};

// Draws codes that are all as probable, scales between 2^-6 and 2^-5, and normal numbers.
extern "C" __global__ void quantized_matmul_timing(KW_PARAMETERS(quantized_matmul_timing)) {
  const WeightDraw weights_of{
      kTimingWeights, static_cast<unsigned long long>(seed), n, k, group, first, groups};
  weights_of.fill(b, b_scale, b_zero, code_bytes, factors);
  Draw{weights_of, m, lda}.fill(a, bias, residual);
}

// Draws numbers from -3 to 3, and scales that are powers of two.
extern "C" __global__ void quantized_matmul_exact(KW_PARAMETERS(quantized_matmul_exact)) {
  const WeightDraw weights_of{
      kExactWeights, static_cast<unsigned long long>(seed), n, k, group, first, groups};
  weights_of.fill(b, b_scale, b_zero, code_bytes, factors);
  Draw{weights_of, m, lda}.fill(a, bias, residual);
}

// Draws NaN here and there in a, among the scales, and the codes if these have it.
extern "C" __global__ void quantized_matmul_nan(KW_PARAMETERS(quantized_matmul_nan)) {
  const WeightDraw weights_of{
      kNanWeights, static_cast<unsigned long long>(seed), n, k, group, first, groups};
  weights_of.fill(b, b_scale, b_zero, code_bytes, factors);
  Draw{weights_of, m, lda}.fill(a, bias, residual);
}
