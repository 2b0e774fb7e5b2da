#include <kernwright/config.cuh>
#include <kernwright/math/activation.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/rows/stream.cuh>

using namespace kernwright;
using namespace kernwright::config;

using Place = StreamPlace<THREADS, ITEMS, LANES, ROW_VECTORS, LINE_ROWS, CHUNKS>;
using Vector = Elements<dtype_t, LANES>;

constexpr Store kStore = STREAMING ? Store::streaming : Store::plain;
constexpr bool kResidual = residual == residual_add;

__device__ __forceinline__ float activate(float x) {
  if constexpr (activation == activation_none) return x;
  if constexpr (activation == activation_gelu_erf) return gelu_erf(x);
  if constexpr (activation == activation_silu) return silu(x);
  if constexpr (activation == activation_relu) return relu(x);
  if constexpr (activation == activation_relu_squared) return relu_squared(x);
  return gelu_tanh(x);
}

// All loads are issued before the first is used, because the bytes in flight decide the rate.
extern "C" __global__ void __launch_bounds__(THREADS)
    bias_activation_streamed(KW_PARAMETERS(bias_activation_streamed)) {
  release_next_kernel();
  const Place place(blockIdx.x, rows);
  const long long first = place.row * columns + place.column;
  constexpr long long kStep = static_cast<long long>(LINE_ROWS) * columns;
  // If the launch starts early, the blocks of the first rows prefetch the bias into the L2 for all.
  if (blockIdx.x < early && place.count > 0) prefetch_line(bias + place.column);
  await_previous_kernel();
  Vector biases;
  Vector values[ITEMS];
  Vector residuals[ITEMS];
  if (place.count > 0) biases = load_elements<Load::read_only, LANES>(bias + place.column);
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (i < place.count) {
      values[i] = load_elements<Load::read_only, LANES>(x + first + i * kStep);
      if constexpr (kResidual) {
        residuals[i] = load_elements<Load::read_only, LANES>(residual + first + i * kStep);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (i < place.count) {
      float value[LANES];
#pragma unroll
      for (int j = 0; j < LANES; ++j) {
        value[j] = activate(values[i][j] + biases[j]);
        if constexpr (kResidual) value[j] += residuals[i][j];
      }
      store_elements<kStore>(y + first + i * kStep, value);
    }
  }
}
