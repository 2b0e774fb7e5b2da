#include <kernwright/quantized/drawing.cuh>

using namespace kernwright;
using namespace kernwright::config;

// Draws codes that are all as probable, and scales between 2^-6 and 2^-5.
extern "C" __global__ void dequantize_weights_timing(KW_PARAMETERS(dequantize_weights_timing)) {
  WeightDraw{kTimingWeights, static_cast<unsigned long long>(seed), n, k, group, first, groups}
      .fill(b, b_scale, b_zero, code_bytes, factors);
}

// Draws numbers from -3 to 3 and scales that are powers of two.
extern "C" __global__ void dequantize_weights_exact(KW_PARAMETERS(dequantize_weights_exact)) {
  WeightDraw{kExactWeights, static_cast<unsigned long long>(seed), n, k, group, first, groups}.fill(
      b, b_scale, b_zero, code_bytes, factors);
}

// Draws NaN here and there among the scales, and the codes if these have it.
extern "C" __global__ void dequantize_weights_nan(KW_PARAMETERS(dequantize_weights_nan)) {
  WeightDraw{kNanWeights, static_cast<unsigned long long>(seed), n, k, group, first, groups}.fill(
      b, b_scale, b_zero, code_bytes, factors);
}
