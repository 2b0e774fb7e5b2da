#include <kernwright/row_weights.cuh>

using namespace kernwright;
using namespace kernwright::row;

constexpr bool kAdds = residual == residual_add;
constexpr bool kScales = weight == weight_scale;
constexpr bool kShifts = bias == bias_add;
// All threads of a row have equally many elements.
constexpr bool kEven = is_pow2(PARTS) && PARTS <= 32 && kShortestRun == KEPT * kRunThreads;

using RowMoments = Each<Moments, ROWS_AT_ONCE>;
using EvenRowMoments = Each<EvenMoments, ROWS_AT_ONCE>;

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

__device__ __forceinline__ EvenRowMoments::Value over_rows(WeightedFeed& feed,
                                                           const RowMoments::Value& part) {
  EvenRowMoments::Value even;
  if constexpr (kEven) {
#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; ++i) {
      even.of[i] = {part.of[i].mean, part.of[i].squares * (1.0f / (KEPT * kLanes))};
    }
    return feed.reduce<EvenRowMoments>(even);
  } else {
    const RowMoments::Value all = feed.reduce<RowMoments>(part);
#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; ++i) {
      even.of[i] = {all.of[i].mean, all.of[i].squares * (1.0f / columns)};
    }
    return even;
  }
}

__device__ __forceinline__ Vector finish(const Vector& x, const Vector& w, const Vector& b,
                                         float mean, float scale) {
  float value[kLanes];
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    value[i] = (lane<dtype_t>(x, i) - mean) * scale;
    if constexpr (kScales) value[i] *= lane<dtype_t>(w, i);
    if constexpr (kShifts) value[i] += lane<dtype_t>(b, i);
  }
  return pack<dtype_t, VECTOR_BYTES>(value);
}

// Each row is brought to mean 0 and variance 1. x and r may be overwritten in place: a thread reads
// its elements before it writes them.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    layernorm_row(const dtype_t* x, const dtype_t* r, const dtype_t* w, const dtype_t* b,
                  dtype_t* y, dtype_t* sum, long long row_count, float epsilon,
                  unsigned early_blocks) {
  const dtype_t* tensors[STREAMS] = {x};
  if constexpr (kAdds) tensors[STREAMS - 1] = r;
  const Share share;
  Weights<kScales, 0> weights(w, share);
  Weights<kShifts, kScales> biases(b, share);
  if (blockIdx.x < early_blocks) {
    weights.prefetch();
    biases.prefetch();
  }
  WeightedFeed feed(tensors, row_count, share);
  weights.hold(feed);
  biases.hold(feed);

  do {
    const long long first = feed.first();
    Vector kept[ROWS_AT_ONCE][KEPT];
    Vector added[ROWS_AT_ONCE][KEPT];
    feed.load(kept, 0);
    if constexpr (kAdds) feed.load(added, 1);
    weights.load_early();
    biases.load_early();
    RowMoments::Value part;
#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; ++i) {
      if constexpr (kAdds) {
#pragma unroll
        for (int step = 0; step < KEPT; ++step) {
          kept[i][step] = add(kept[i][step], added[i][step]);
          if (feed.active(i) && share.has(step)) {
            store<Store::plain>(sum + first + i * columns + share.column(step), kept[i][step]);
          }
        }
      }
      part.of[i] = moments_of(kept[i], share);
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
          part.of[0] = Moments::combine(part.of[0], moments_of(rest));
        }
      }
    }
    const EvenRowMoments::Value all = over_rows(feed, part);
    float scale[ROWS_AT_ONCE];
#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; ++i) scale[i] = rsqrtf(all.of[i].variance + epsilon);
    weights.await(feed);
    biases.await(feed);
    if (!feed.active()) continue;

    keep_packed(kept);
#pragma unroll
    for (int step = 0; step < KEPT; ++step) {
      if (!share.has(step)) continue;
      const Vector w_of_step = weights.at(step, feed);
      const Vector b_of_step = biases.at(step, feed);
#pragma unroll
      for (int i = 0; i < ROWS_AT_ONCE; ++i) {
        const Vector value = finish(kept[i][step], w_of_step, b_of_step, all.of[i].mean, scale[i]);
        if (feed.active(i)) {
          store<Store::plain>(y + first + i * columns + share.column(step), value);
        }
      }
    }
    if constexpr (KEPT < STEPS) {
#pragma unroll 4
      for (int step = KEPT; step < STEPS; ++step) {
        if (!share.has(step)) continue;
        const long long at = first + share.column(step);
        const Vector rest = load<Load::plain, VECTOR_BYTES>((kAdds ? sum : x) + at);
        store<Store::plain>(y + at, finish(rest, weights.at(step, feed), biases.at(step, feed),
                                           all.of[0].mean, scale[0]));
      }
    }
  } while (feed.next());
}
