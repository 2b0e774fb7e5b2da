#include <kernwright/config.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/quantized/row_scale.cuh>
#include <kernwright/rows/pieces.cuh>

using namespace kernwright;
using namespace kernwright::config;

using Piece = rows::Piece<dtype_t, LANES, VECTOR>;

constexpr bool kAdds = residual == residual_add;
constexpr bool kScales = weight == weight_scale;
constexpr bool kShifts = bias == bias_add;

// Calls work(piece, step) for all of a thread's pieces of a row, whose columns `column` returns.
// Those that are not kept are read from `row`.
template <typename Column, typename Work>
__device__ __forceinline__ void for_each(const Piece (&kept)[KEPT], const dtype_t* row, int end,
                                         const Column& column, const Work& work) {
#pragma unroll
  for (int step = 0; step < KEPT; ++step) work(kept[step], step);
#pragma unroll 2
  for (int step = KEPT; step < STEPS; ++step) {
    Piece rest;
    rest.load<Load::plain>(row, column(step), end);
    work(rest, step);
  }
}

// Brings each row to mean 0 and variance 1, and divides each 128 of it by their scale. x and r may
// be overwritten in place: a thread reads its elements before it writes them.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    layernorm_groups(KW_PARAMETERS(layernorm_groups)) {
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
  Piece shifts[KEPT];
#pragma unroll
  for (int step = 0; step < KEPT; ++step) {
    kept[step].load<Load::read_only>(x + first, column(step), end);
    if constexpr (kAdds) added[step].load<Load::read_only>(r + first, column(step), end);
    // Plain loads, because the compiler would move those that it knows to be read-only behind the
    // reductions.
    if constexpr (kScales && WEIGHT_EARLY) scales[step].load<Load::plain>(w, column(step), end);
    if constexpr (kShifts && WEIGHT_EARLY) shifts[step].load<Load::plain>(b, column(step), end);
  }
  if constexpr (kAdds) {
#pragma unroll
    for (int step = 0; step < KEPT; ++step) {
      kept[step].add(added[step]);
      kept[step].store(sum + first, column(step), end);
    }
#pragma unroll 2
    for (int step = KEPT; step < STEPS; ++step) {
      Piece rest;
      Piece other;
      rest.load<Load::plain>(x + first, column(step), end);
      other.load<Load::plain>(r + first, column(step), end);
      rest.add(other);
      rest.store(sum + first, column(step), end);
    }
  }
  float part = 0;
  for_each(kept, written + first, end, column, [&](const Piece& own, int) {
#pragma unroll
    for (int i = 0; i < LANES; ++i) part += own[i];
  });
  float mean = rows::row_reduce<0, Sum, THREADS_PER_ROW, ROWS_PER_BLOCK>(part) * (1.0f / columns);
#pragma unroll
  for (Piece& piece : kept) piece.keep_packed();
  using Deviations = Each<Sum, 2>;
  Deviations::Value deviations = Deviations::identity();  // and their squares
  for_each(kept, written + first, end, column, [&](const Piece& own, int step) {
#pragma unroll
    for (int i = 0; i < LANES; ++i) {
      const float d = column(step) + i < end ? own[i] - mean : 0.0f;
      deviations.of[0] += d;
      deviations.of[1] += d * d;
    }
  });
  deviations = rows::row_reduce<1, Deviations, THREADS_PER_ROW, ROWS_PER_BLOCK>(deviations);
  const float distance = deviations.of[0] * (1.0f / columns);  // by which the mean was rounded
  mean += distance;
  const float variance = deviations.of[1] * (1.0f / columns) - distance * distance;
  const float factor = rsqrtf(variance + eps);

#pragma unroll
  for (Piece& piece : kept) piece.keep_packed();
  const auto write = [&](const Piece& own, const Piece& w_of_step, const Piece& b_of_step,
                         int step) {
    const int place = column(step);
    float value[LANES];
#pragma unroll
    for (int i = 0; i < LANES; ++i) {
      value[i] = (own[i] - mean) * factor;
      if constexpr (kScales) value[i] *= w_of_step[i];
      if constexpr (kShifts) value[i] += b_of_step[i];
      if (place + i >= end) value[i] = 0;
    }
    const float of_group = divide_by_group_scale<out_t, 128 / LANES>(value, scale_least);
    if (place < end && place % 128 == 0) y_scale[place / 128 * rows + row] = of_group;
    rows::store_values<Store::plain, CODES>(y + first, place, end, value);
  };
#pragma unroll
  for (int step = 0; step < KEPT; ++step) {
    if constexpr (!WEIGHT_EARLY) {
      if constexpr (kScales) scales[step].load<Load::read_only>(w, column(step), end);
      if constexpr (kShifts) shifts[step].load<Load::read_only>(b, column(step), end);
    }
    write(kept[step], scales[step], shifts[step], step);
  }
#pragma unroll 2
  for (int step = KEPT; step < STEPS; ++step) {
    Piece rest;
    Piece w_of_step;
    Piece b_of_step;
    rest.load<Load::plain>(written + first, column(step), end);
    if constexpr (kScales) w_of_step.load<Load::read_only>(w, column(step), end);
    if constexpr (kShifts) b_of_step.load<Load::read_only>(b, column(step), end);
    write(rest, w_of_step, b_of_step, step);
  }
}
