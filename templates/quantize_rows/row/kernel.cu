#include <kernwright/quantized/row_scale.cuh>
#include <kernwright/rows/manifest_row.cuh>

using namespace kernwright;
using namespace kernwright::row;

__device__ __forceinline__ float largest(const Vector& x, float most) {
#pragma unroll
  for (int i = 0; i < kLanes; ++i) most = Max::combine(most, fabsf(lane<dtype_t>(x, i)));
  return most;
}

__device__ __forceinline__ void write(out_t* row, const Share& share, int step, const Vector& x,
                                      float factor) {
  float value[kLanes];
#pragma unroll
  for (int i = 0; i < kLanes; ++i) value[i] = lane<dtype_t>(x, i) * factor;
  share.store_to(row, step, value);
}

// Quantizes each row by its largest absolute value. Lanes of a vector that are not the row's hold
// zeros.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    quantize_rows_row(KW_PARAMETERS(quantize_rows_row)) {
  const dtype_t* tensors[STREAMS] = {x};
  Share share;
  release_next_kernel();
  await_previous_kernel();
  Feed feed(tensors, rows, share);

  do {
    const long long first = feed.row() * columns;
    Vector kept[KEPT];
    feed.load(kept, 0);
    float most = 0;
#pragma unroll
    for (int step = 0; step < KEPT; ++step) most = largest(kept[step], most);
    if constexpr (KEPT < STEPS) {  // the rest is read now, and once more to be written
      if (feed.active()) {
#pragma unroll 4
        for (int step = KEPT; step < STEPS; ++step) {
          if (share.has(step)) most = largest(share.load_from<Load::plain>(x + first, step), most);
        }
      }
    }
    const float of_row = row_scale<out_t>(feed.reduce<Max>(most), scale_least);
    if (!feed.active()) continue;

    if (share.leads()) scale[feed.row()] = of_row;
    const float factor = 1 / of_row;
#pragma unroll
    for (int step = 0; step < KEPT; ++step) {
      if (share.has(step)) write(q + first, share, step, kept[step], factor);
    }
    if constexpr (KEPT < STEPS) {
#pragma unroll 4
      for (int step = KEPT; step < STEPS; ++step) {
        if (!share.has(step)) continue;
        write(q + first, share, step, share.load_from<Load::plain>(x + first, step), factor);
      }
    }
  } while (feed.next());
}
