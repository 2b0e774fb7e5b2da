#include <kernwright/rows/manifest_row.cuh>

using namespace kernwright;
using namespace kernwright::row;

using Reduction = Chosen<kind == kind_max, Max, Sum>::Type;

__device__ __forceinline__ float include(float so_far, const Vector& x, const Lanes& lanes) {
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    // Lanes of other rows are 0, which changes no sum, but may be a maximum.
    if (kind == kind_max && !lanes.has(i)) continue;
    const float v = lane<dtype_t>(x, i);
    so_far = Reduction::combine(so_far, kind == kind_sum_squares ? v * v : v);
  }
  return so_far;
}

// Reduces each row to one value. No element of a row is needed twice, so the kept vectors are only
// the loads in flight at once.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    reduce_row(KW_PARAMETERS(reduce_row)) {
  const dtype_t* const tensors[STREAMS] = {x};
  Share share;
  release_next_kernel();
  await_previous_kernel();
  Feed feed(tensors, rows, share);

  do {
    Vector kept[KEPT];
    feed.load(kept, 0);
    float part = Reduction::identity();
#pragma unroll
    for (int step = 0; step < KEPT; ++step) {
      if (share.has(step)) part = include(part, kept[step], share.lanes(step));
    }
    if constexpr (KEPT < STEPS) {
      if (feed.active()) {
        const dtype_t* const source = x + feed.row() * columns;
#pragma unroll KEPT
        for (int step = KEPT; step < STEPS; ++step) {
          if (!share.has(step)) continue;
          part = include(part, share.load_from<kRead>(source, step), share.lanes(step));
        }
      }
    }
    const float all = feed.reduce<Reduction>(part);
    if (feed.active() && share.leads()) {
      y[feed.row()] = from_float<out_t>(kind == kind_mean ? all / columns : all);
    }
  } while (feed.next());
}
