#include <kernwright/row_weights.cuh>

using namespace kernwright;
using namespace kernwright::row;

constexpr bool kAdds = residual == residual_add;
constexpr bool kScales = weight == weight_scale;

__device__ __forceinline__ float squares(const Vector& x) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    const float v = lane<dtype_t>(x, i);
    sum += v * v;
  }
  return sum;
}

__device__ __forceinline__ void write(out_t* y, const Vector& x, const Vector& w, float factor) {
  float value[kLanes];
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    value[i] = lane<dtype_t>(x, i) * factor;
    if constexpr (kScales) value[i] *= lane<dtype_t>(w, i);
  }
  store_elements<Store::plain>(y, value);
}

// Each row is normalised by its root mean square. x and r may be overwritten in place: a thread
// reads its elements before it writes them.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    rmsnorm_row(const dtype_t* x, const dtype_t* r, const dtype_t* __restrict__ w, out_t* y,
                dtype_t* sum, long long row_count, float epsilon, float scale,
                unsigned early_blocks) {
  const dtype_t* tensors[STREAMS] = {x};
  if constexpr (kAdds) tensors[STREAMS - 1] = r;
  const Share share;
  Weights<kScales, 0> weights(w, share);
  if (blockIdx.x < early_blocks) weights.prefetch();
  Feed feed(tensors, row_count, share);
  weights.hold(feed);

  do {
    const long long first = feed.row() * columns;
    Vector kept[KEPT];
    Vector added[KEPT];
    feed.load(kept, 0);
    if constexpr (kAdds) feed.load(added, 1);
    weights.load_early();

    float part = 0;
#pragma unroll
    for (int step = 0; step < KEPT; ++step) {
      if constexpr (kAdds) {
        kept[step] = add(kept[step], added[step]);
        if (feed.active() && share.has(step)) {
          store<Store::plain>(sum + first + share.column(step), kept[step]);
        }
      }
      part += squares(kept[step]);
    }
    if constexpr (KEPT < STEPS) {  // the rest is read now, and once more to be written
      if (feed.active()) {
#pragma unroll 4
        for (int step = KEPT; step < STEPS; ++step) {
          if (!share.has(step)) continue;
          const long long at = first + share.column(step);
          Vector rest = load<Load::plain, VECTOR_BYTES>(x + at);
          if constexpr (kAdds) {
            rest = add(rest, load<Load::plain, VECTOR_BYTES>(r + at));
            store<Store::plain>(sum + at, rest);
          }
          part += squares(rest);
        }
      }
    }
    const float factor = scale * rsqrtf(feed.reduce<Sum>(part) * (1.0f / columns) + epsilon);
    weights.await(feed);
    if (!feed.active()) continue;

    const auto finish = [&](const Vector& value, int step) {
      write(y + first + share.column(step), value, weights.at(step, feed), factor);
    };
#pragma unroll
    for (int step = 0; step < KEPT; ++step) {
      if (share.has(step)) finish(kept[step], step);
    }
    if constexpr (KEPT < STEPS) {
#pragma unroll 4
      for (int step = KEPT; step < STEPS; ++step) {
        if (!share.has(step)) continue;
        finish(load<Load::plain, VECTOR_BYTES>((kAdds ? sum : x) + first + share.column(step)),
               step);
      }
    }
  } while (feed.next());
}
