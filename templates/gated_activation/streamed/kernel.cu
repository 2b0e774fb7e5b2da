#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/rows/manifest_gated.cuh>
#include <kernwright/rows/stream.cuh>

using namespace kernwright;
using namespace kernwright::gated;

using Place = StreamPlace<THREADS, ITEMS, LANES, ROW_VECTORS, LINE_ROWS, CHUNKS>;
using Vector = Elements<dtype_t, LANES>;

constexpr Store kStore = STREAMING ? Store::streaming : Store::plain;
// All loads are issued before the first is used, because the bytes in flight decide the rate.
extern "C" __global__ void __launch_bounds__(THREADS)
    gated_activation_streamed(KW_PARAMETERS(gated_activation_streamed)) {
  if constexpr (kPacked) {
    gate = x;
    up = x + columns;
  }
  release_next_kernel();
  const Place place(blockIdx.x, rows);
  const long long from = place.row * kPitch + place.column;
  const long long to = place.row * columns + place.column;
  constexpr long long kFromStep = LINE_ROWS * kPitch;
  constexpr long long kToStep = static_cast<long long>(LINE_ROWS) * columns;
  await_previous_kernel();
  const float unit = quantize == quantize_tensor ? 1 / *given_scale : scale;
  Vector gates[ITEMS];
  Vector ups[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (i < place.count && scale != 0) {
      gates[i] = load_elements<Load::read_only, LANES>(gate + from + i * kFromStep);
      ups[i] = load_elements<Load::read_only, LANES>(up + from + i * kFromStep);
    }
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (i < place.count) {
      float value[LANES];
#pragma unroll
      for (int j = 0; j < LANES; ++j) {
        value[j] = activate(gates[i][j]) * (ups[i][j] * unit);
        if (scale == 0) value[j] = 0;
      }
      store_elements<kStore>(y + to + i * kToStep, value);
    }
  }
}
