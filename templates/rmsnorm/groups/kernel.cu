#include <kernwright/config.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/quantized/row_scale.cuh>
#include <kernwright/rows/pieces.cuh>

using namespace kernwright;
using namespace kernwright::config;

using Piece = rows::Piece<dtype_t, LANES, VECTOR>;

constexpr bool kAdds = residual == residual_add;
constexpr bool kScales = weight == weight_scale;

__device__ __forceinline__ float squares(const Piece& x) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < LANES; ++i) sum += x[i] * x[i];
  return sum;
}

// Normalises each row by its root mean square, and divides each 128 of it by their scale. x and r
// may be overwritten in place: a thread reads its elements before it writes them.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    rmsnorm_groups(KW_PARAMETERS(rmsnorm_groups)) {
  const long long row =
      static_cast<long long>(blockIdx.x) * ROWS_PER_BLOCK + threadIdx.x / THREADS_PER_ROW;
  const int end = row < rows ? columns : 0;
  const long long first = row * columns;
  const auto column = [](int step) {
    return (step * THREADS_PER_ROW + static_cast<int>(threadIdx.x) % THREADS_PER_ROW) * LANES;
  };
  const dtype_t* const written = kAdds ? sum : x;
  release_next_kernel();
  await_previous_kernel();

  Piece kept[KEPT];
  Piece added[KEPT];
  Piece scales[KEPT];
#pragma unroll
  for (int step = 0; step < KEPT; ++step) {
    kept[step].load<Load::read_only>(x + first, column(step), end);
    if constexpr (kAdds) added[step].load<Load::read_only>(r + first, column(step), end);
    // A plain load, because the compiler would move one that it knows to be read-only behind the
    // reduction.
    if constexpr (kScales && WEIGHT_EARLY) scales[step].load<Load::plain>(w, column(step), end);
  }
  float part = 0;
#pragma unroll
  for (int step = 0; step < KEPT; ++step) {
    if constexpr (kAdds) {
      kept[step].add(added[step]);
      kept[step].store(sum + first, column(step), end);
    }
    part += squares(kept[step]);
  }
#pragma unroll 2
  for (int step = KEPT; step < STEPS; ++step) {  // read now, and once more to be written
    Piece rest;
    rest.load<Load::plain>(x + first, column(step), end);
    if constexpr (kAdds) {
      Piece other;
      other.load<Load::plain>(r + first, column(step), end);
      rest.add(other);
      rest.store(sum + first, column(step), end);
    }
    part += squares(rest);
  }
  const float all = rows::row_reduce<0, Sum, THREADS_PER_ROW, ROWS_PER_BLOCK>(part);
  const float factor = rsqrtf(all * (1.0f / columns) + eps);

  const auto write = [&](int step, const Piece& own, const Piece& w_of_step) {
    float value[LANES];
#pragma unroll
    for (int i = 0; i < LANES; ++i) {
      value[i] = own[i] * factor;
      if constexpr (kScales) value[i] *= w_of_step[i];
    }
    const float of_group = divide_by_group_scale<out_t, 128 / LANES>(value, scale_least);
    const int place = column(step);
    if (place < end && place % 128 == 0) y_scale[place / 128 * rows + row] = of_group;
    rows::store_values<Store::plain, CODES>(y + first, place, end, value);
  };
#pragma unroll
  for (int step = 0; step < KEPT; ++step) {
    if constexpr (kScales && !WEIGHT_EARLY) {
      scales[step].load<Load::read_only>(w, column(step), end);
    }
    write(step, kept[step], scales[step]);
  }
#pragma unroll 2
  for (int step = KEPT; step < STEPS; ++step) {
    Piece rest;
    Piece w_of_step;
    rest.load<Load::plain>(written + first, column(step), end);
    if constexpr (kScales) w_of_step.load<Load::read_only>(w, column(step), end);
    write(step, rest, w_of_step);
  }
}
