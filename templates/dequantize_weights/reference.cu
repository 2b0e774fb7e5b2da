#include <kernwright/config.cuh>
#include <kernwright/quantized/weight_reference.cuh>

using namespace kernwright;
using namespace kernwright::config;

// Dequantizes one element at a time; w_reference[rows, k] is not rounded to the operation's type.
extern "C" __global__ void dequantize_weights_reference(
    KW_PARAMETERS(dequantize_weights_reference)) {
  const StoredWeights stored{b, b_scale, b_zero, n, k, group, first, groups};
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * k;
       i += stride) {
    const double element = stored.at(i / k, i % k);
    w_reference[i] = static_cast<float>(element);
    w_magnitude[i] = static_cast<float>(fabs(element));
  }
}
