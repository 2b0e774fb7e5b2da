#include <kernwright/row_weights.cuh>

using namespace kernwright;
using namespace kernwright::row;

constexpr bool kAdds = residual == residual_add;
constexpr bool kScales = weight == weight_scale;
constexpr bool kShifts = bias == bias_add;
// All threads of a row have equally many elements.
constexpr bool kEven = is_pow2(PARTS) && PARTS <= 32 && kShortestRun == KEPT * kRunThreads;

// Of one vector: differences from its first element, so that equal values have no deviation.
__device__ __forceinline__ Moments::Value moments_of(const Vector& x) {
  const float origin = lane<dtype_t>(x, 0);
  float sum = 0;
#pragma unroll
  for (int i = 1; i < kLanes; ++i) sum += lane<dtype_t>(x, i) - origin;
  const float mean = origin + sum * (1.0f / kLanes);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    const float d = lane<dtype_t>(x, i) - mean;
    squares += d * d;
  }
  return {kLanes, mean, squares};
}

// Of the kept vectors that the row reaches, in one turn. The difference of sums is harmless here:
// they are of differences from one of the values, whose square is at most `count` times the mean
// square of the deviations.
__device__ __forceinline__ Moments::Value moments_of(const Vector (&x)[KEPT], const Share& share) {
  const float origin = lane<dtype_t>(x[0], 0);
  float sum = 0;
  float squares = 0;
  float count = 0;
#pragma unroll
  for (int step = 0; step < KEPT; ++step) {
    if (!share.has(step)) continue;
    count += kLanes;
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const float d = lane<dtype_t>(x[step], i) - origin;
      sum += d;
      squares += d * d;
    }
  }
  const float mean = __fdividef(sum, fmaxf(count, 1.0f));
  squares -= sum * mean;
  return {count, origin + mean, squares < 0 ? 0.0f : squares};
}

__device__ __forceinline__ EvenMoments::Value over_row(Feed& feed, const Moments::Value& part) {
  if constexpr (kEven) {
    return feed.reduce<EvenMoments>({part.mean, part.squares * (1.0f / (KEPT * kLanes))});
  } else {
    const Moments::Value all = feed.reduce<Moments>(part);
    return {all.mean, all.squares * (1.0f / columns)};
  }
}

__device__ __forceinline__ void write(dtype_t* y, const Vector& x, const Vector& w, const Vector& b,
                                      float mean, float scale) {
  float value[kLanes];
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    value[i] = (lane<dtype_t>(x, i) - mean) * scale;
    if constexpr (kScales) value[i] *= lane<dtype_t>(w, i);
    if constexpr (kShifts) value[i] += lane<dtype_t>(b, i);
  }
  store<Store::plain>(y, pack<dtype_t, VECTOR_BYTES>(value));
}

// Each row is brought to mean 0 and variance 1. x and r may be overwritten in place: a thread reads
// its elements before it writes them.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    layernorm_row(const dtype_t* x, const dtype_t* r, const dtype_t* __restrict__ w,
                  const dtype_t* __restrict__ b, dtype_t* y, dtype_t* sum, long long row_count,
                  float epsilon, unsigned early_blocks) {
  const dtype_t* tensors[STREAMS] = {x};
  if constexpr (kAdds) tensors[STREAMS - 1] = r;
  const Share share;
  Weights<kScales, 0> weights(w, share);
  Weights<kShifts, kScales> biases(b, share);
  if (blockIdx.x < early_blocks) {
    weights.prefetch();
    biases.prefetch();
  }
  Feed feed(tensors, row_count, share);
  weights.hold(feed);
  biases.hold(feed);

  do {
    const long long first = feed.row() * columns;
    Vector kept[KEPT];
    Vector added[KEPT];
    feed.load(kept, 0);
    if constexpr (kAdds) feed.load(added, 1);
    weights.load_early();
    biases.load_early();
    if constexpr (kAdds) {
#pragma unroll
      for (int step = 0; step < KEPT; ++step) {
        kept[step] = add(kept[step], added[step]);
        if (feed.active() && share.has(step)) {
          store<Store::plain>(sum + first + share.column(step), kept[step]);
        }
      }
    }
    Moments::Value part = moments_of(kept, share);
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
          part = Moments::combine(part, moments_of(rest));
        }
      }
    }
    const EvenMoments::Value all = over_row(feed, part);
    const float scale = rsqrtf(all.variance + epsilon);
    weights.await(feed);
    biases.await(feed);
    if (!feed.active()) continue;

    const auto finish = [&](const Vector& value, int step) {
      write(y + first + share.column(step), value, weights.at(step, feed), biases.at(step, feed),
            all.mean, scale);
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
