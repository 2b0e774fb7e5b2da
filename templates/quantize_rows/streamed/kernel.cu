#include <kernwright/config.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/quantized/row_scale.cuh>
#include <kernwright/rows/pieces.cuh>

using namespace kernwright;
using namespace kernwright::config;

using Piece = rows::Piece<dtype_t, LANES, VECTOR>;

constexpr Store kStore = STREAMING ? Store::streaming : Store::plain;

// Quantizes each 128 columns of a row by their largest absolute value.
extern "C" __global__ void __launch_bounds__(THREADS)
    quantize_rows_streamed(KW_PARAMETERS(quantize_rows_streamed)) {
  release_next_kernel();
  const auto place_of = [&](int i) {
    return rows::group_place<THREADS, ITEMS, LANES, GROUPS>(i, rows, columns);
  };
  await_previous_kernel();
  Piece pieces[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const rows::GroupPlace place = place_of(i);
    pieces[i].load<Load::read_only>(x + place.row * columns, place.column, place.end);
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    float value[LANES];
#pragma unroll
    for (int e = 0; e < LANES; ++e) value[e] = pieces[i][e];
    const float of_group = divide_by_group_scale<out_t, GROUP_THREADS>(value, scale_least);
    const rows::GroupPlace place = place_of(i);
    if (place.leads()) scale[place.group * rows + place.row] = of_group;
    rows::store_values<kStore, CODES>(q + place.row * columns, place.column, place.end, value);
  }
}
