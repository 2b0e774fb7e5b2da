#include <kernwright/row.cuh>

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

__device__ __forceinline__ Vector load_weight(const dtype_t* w, int column) {
  if constexpr (kScales) {
    return load_vector(w + column);
  } else {
    return {};
  }
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
  if constexpr (kScales) {
    if (blockIdx.x < early_blocks) prefetch_kept(w, share);
  }
  Feed feed(tensors, row_count, share);
  Vector weights[KEPT];
  if constexpr (WEIGHT_EARLY && STAGES > 0) load_kept(weights, w, share);

  do {
    const long long first = feed.row() * columns;
    Vector kept[KEPT];
    Vector added[KEPT];
    feed.load(kept, 0);
    if constexpr (kAdds) feed.load(added, 1);
    if constexpr (WEIGHT_EARLY && STAGES == 0) load_kept(weights, w, share);

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
    feed.release();
    if (!feed.active()) continue;

#pragma unroll
    for (int step = 0; step < KEPT; ++step) {
      if (!share.has(step)) continue;
      const int column = share.column(step);
      if constexpr (WEIGHT_EARLY) {
        write(y + first + column, kept[step], weights[step], factor);
      } else {
        write(y + first + column, kept[step], load_weight(w, column), factor);
      }
    }
    if constexpr (KEPT < STEPS) {
#pragma unroll 4
      for (int step = KEPT; step < STEPS; ++step) {
        if (!share.has(step)) continue;
        const int column = share.column(step);
        const Vector rest = load<Load::plain, VECTOR_BYTES>((kAdds ? sum : x) + first + column);
        write(y + first + column, rest, load_weight(w, column), factor);
      }
    }
  } while (feed.next());
}
