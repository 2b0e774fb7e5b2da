#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/quantized/row_scale.cuh>
#include <kernwright/rows/manifest_gated.cuh>
#include <kernwright/rows/pieces.cuh>

using namespace kernwright;
using namespace kernwright::gated;

using Piece = rows::Piece<dtype_t, LANES, VECTOR>;

// Quantizes each row of the result by its largest absolute value. Elements that a row does not have
// are 0.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    gated_activation_row(KW_PARAMETERS(gated_activation_row)) {
  if constexpr (kPacked) {
    gate = x;
    up = x + columns;
  }
  const long long row =
      static_cast<long long>(blockIdx.x) * ROWS_PER_BLOCK + threadIdx.x / THREADS_PER_ROW;
  const int end = row < rows ? columns : 0;
  const auto column = [](int step) {
    return (step * THREADS_PER_ROW + static_cast<int>(threadIdx.x) % THREADS_PER_ROW) * LANES;
  };
  const auto load = [&](Piece& of_gate, Piece& of_up, int step) {
    of_gate.load<Load::read_only>(gate + row * kPitch, column(step), end);
    of_up.load<Load::read_only>(up + row * kPitch, column(step), end);
  };
  const auto compute = [](const Piece& of_gate, const Piece& of_up, float(&value)[LANES]) {
#pragma unroll
    for (int i = 0; i < LANES; ++i) value[i] = activate(of_gate[i]) * of_up[i];
  };
  release_next_kernel();
  await_previous_kernel();

  Piece gates[KEPT];
  Piece ups[KEPT];
#pragma unroll
  for (int step = 0; step < KEPT; ++step) load(gates[step], ups[step], step);
  float kept[KEPT][LANES];
  float most = 0;
#pragma unroll
  for (int step = 0; step < KEPT; ++step) {
    compute(gates[step], ups[step], kept[step]);
    most = largest(kept[step], most);
  }
#pragma unroll 2
  for (int step = KEPT; step < STEPS; ++step) {  // read now, and once more to be written
    Piece of_gate;
    Piece of_up;
    load(of_gate, of_up, step);
    float value[LANES];
    compute(of_gate, of_up, value);
    most = largest(value, most);
  }
  const float of_row = row_scale<out_t>(
      rows::row_reduce<0, Max, THREADS_PER_ROW, ROWS_PER_BLOCK>(most), scale_least);
  if (end != 0 && column(0) == 0) y_scale[row] = of_row;

  const float factor = 1 / of_row;
  const auto write = [&](float(&value)[LANES], int step) {
#pragma unroll
    for (float& v : value) v *= factor;
    rows::store_values<Store::plain, CODES>(y + row * columns, column(step), end, value);
  };
#pragma unroll
  for (int step = 0; step < KEPT; ++step) write(kept[step], step);
#pragma unroll 2
  for (int step = KEPT; step < STEPS; ++step) {
    Piece of_gate;
    Piece of_up;
    load(of_gate, of_up, step);
    float value[LANES];
    compute(of_gate, of_up, value);
    write(value, step);
  }
}
