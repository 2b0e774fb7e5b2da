#include <kernwright/rows/manifest_row.cuh>

using namespace kernwright;
using namespace kernwright::row;

constexpr bool kAdds = mask == mask_additive;
constexpr bool kCausal = mask == mask_causal;

// Turns a row's elements into exponents.
struct Exponents {
  float scale;
  long long seen;  // columns of the row that count

  // Sets v to the exponents of the vector of `step`, -inf if the column does not count.
  __device__ __forceinline__ void of(float (&v)[kLanes], const Vector& x, const Vector& bias,
                                     const Share& share, int step) const {
    const Lanes own = share.lanes(step);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      v[i] = lane<dtype_t>(x, i) * scale;
      if constexpr (kAdds) v[i] = fmaf(lane<dtype_t>(x, i), scale, lane<dtype_t>(bias, i));
      if (!own.has(i)) v[i] = minus_infinity();
      if constexpr (kCausal) v[i] = share.column(step) + i < seen ? v[i] : minus_infinity();
    }
  }
};

__device__ __forceinline__ float largest(const float (&v)[kLanes], float most) {
#pragma unroll
  for (int i = 0; i < kLanes; ++i) most = Max::combine(most, v[i]);
  return most;
}

// Replaces v by e^(v - most) and returns their sum. If all are -inf the base is 0, since a
// difference of two -inf is not a number. The difference is taken before it is multiplied by
// log2(e): folded into the scale, that factor would make -inf of the largest negative numbers, by
// which callers mask, and a row of such numbers alone would have no largest.
__device__ __forceinline__ float exponentiate(float (&v)[kLanes], float most) {
  const float base = most == minus_infinity() ? 0.0f : most;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    v[i] = exp_fast(v[i] - base);
    sum += v[i];
  }
  return sum;
}

__device__ __forceinline__ void write(dtype_t* row, const Share& share, int step,
                                      float (&p)[kLanes], float factor) {
#pragma unroll
  for (int i = 0; i < kLanes; ++i) p[i] *= factor;
  share.store_to(row, step, pack<dtype_t, VECTOR_BYTES>(p));
}

// Reads and exponentiates each row once: a thread's powers are relative to its own largest value,
// and a factor of the thread takes them to the row's largest. x and bias may be overwritten in
// place.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    softmax_row(KW_PARAMETERS(softmax_row)) {
  const dtype_t* tensors[STREAMS] = {x};
  if constexpr (kAdds) tensors[STREAMS - 1] = bias;
  Share share;
  release_next_kernel();
  await_previous_kernel();
  Feed feed(tensors, rows, share);
  const long long sequence = queries > 0 ? queries : columns;

  do {
    const long long first = feed.row() * columns;
    Exponents exponents{scale, columns};
    if constexpr (kCausal) exponents.seen = columns - sequence + feed.row() % sequence + 1;
    Vector kept[KEPT];
    Vector added[KEPT];
    // A scale of 0 removes x, whatever its value, even NaN.
    const auto counts = [&](int column) {
      return scale != 0 && (!kCausal || column < exponents.seen);
    };
    feed.load_if(kept, 0, counts);
    if constexpr (kAdds) feed.load(added, 1);

    float power[KEPT][kLanes];
    LogSum::Value part = LogSum::identity();
#pragma unroll
    for (int step = 0; step < KEPT; ++step) {
      exponents.of(power[step], kept[step], added[step], share, step);
      if (share.has(step)) part.largest = largest(power[step], part.largest);
    }
#pragma unroll
    for (int step = 0; step < KEPT; ++step) {
      if (share.has(step)) part.sum += exponentiate(power[step], part.largest);
    }
    const float own = part.largest;
    // The rest is read now, and once more to be written.
    const auto rest = [&](float(&v)[kLanes], int step) {
      Vector value{};
      if (scale != 0) value = share.load_from<Load::plain>(x + first, step);
      Vector offset{};
      if constexpr (kAdds) offset = share.load_from<Load::plain>(bias + first, step);
      exponents.of(v, value, offset, share, step);
    };
    if constexpr (KEPT < STEPS) {
      if (feed.active()) {
#pragma unroll 2
        for (int step = KEPT; step < STEPS; ++step) {
          if (!share.has(step)) continue;
          float v[kLanes];
          rest(v, step);
          LogSum::Value more{largest(v, minus_infinity()), 0};
          more.sum = exponentiate(v, more.largest);
          part = LogSum::combine(part, more);
        }
      }
    }
    const LogSum::Value all = feed.reduce<LogSum>(part);
    if (!feed.active()) continue;

    const float share_of_sum = all.sum == 0 ? 0.0f : 1.0f / all.sum;  // 0: nothing is seen
    const float factor = LogSum::factor(own, all.largest) * share_of_sum;
#pragma unroll
    for (int step = 0; step < KEPT; ++step) {
      if (share.has(step)) write(y + first, share, step, power[step], factor);
    }
    if constexpr (KEPT < STEPS) {
#pragma unroll 2
      for (int step = KEPT; step < STEPS; ++step) {
        if (!share.has(step)) continue;
        float v[kLanes];
        rest(v, step);
        exponentiate(v, all.largest);
        write(y + first, share, step, v, share_of_sum);
      }
    }
  } while (feed.next());
}
