#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/quantized/row_scale.cuh>
#include <kernwright/rows/manifest_gated.cuh>
#include <kernwright/rows/pieces.cuh>

using namespace kernwright;
using namespace kernwright::gated;

using Piece = rows::Piece<dtype_t, LANES, VECTOR>;

constexpr Store kStore = STREAMING ? Store::streaming : Store::plain;

// Quantizes each 128 columns of a row of the result by their largest absolute value.
extern "C" __global__ void __launch_bounds__(THREADS)
    gated_activation_groups(KW_PARAMETERS(gated_activation_groups)) {
  if constexpr (kPacked) {
    gate = x;
    up = x + columns;
  }
  release_next_kernel();
  const auto place_of = [&](int i) {
    return rows::group_place<THREADS, ITEMS, LANES, GROUPS>(i, rows, columns);
  };
  await_previous_kernel();
  Piece gates[ITEMS];
  Piece ups[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const rows::GroupPlace place = place_of(i);
    gates[i].load<Load::read_only>(gate + place.row * kPitch, place.column, place.end);
    ups[i].load<Load::read_only>(up + place.row * kPitch, place.column, place.end);
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    float value[LANES];
#pragma unroll
    for (int e = 0; e < LANES; ++e) value[e] = activate(gates[i][e]) * ups[i][e];
    const float of_group = divide_by_group_scale<out_t, GROUP_THREADS>(value, scale_least);
    const rows::GroupPlace place = place_of(i);
    if (place.leads()) y_scale[place.group * rows + place.row] = of_group;
    rows::store_values<kStore, CODES>(y + place.row * columns, place.column, place.end, value);
  }
}
