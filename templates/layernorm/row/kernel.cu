#include <kernwright/quantized/row_scale.cuh>
#include <kernwright/rows/manifest_row.cuh>
#include <kernwright/rows/sums.cuh>

using namespace kernwright;
using namespace kernwright::row;

constexpr bool kAdds = residual == residual_add;
constexpr bool kScales = weight == weight_scale;
constexpr bool kShifts = bias == bias_add;
constexpr bool kFindsScale = quantize == quantize_row;
constexpr bool kWordsVary = Weights<(kScales || kShifts), 0>::kWordsVary;

// Each row has two sums: of its elements and of their squares, or of their deviations and of those
// squares.
using Sums = Each<Sum, 2 * ROWS_AT_ONCE>;
using Mosts = Each<Max, ROWS_AT_ONCE>;

// The variance is the mean square less the square of the mean, with an error of a few 2^-23 of the
// mean square. If it is a smaller share of the mean square than this, results of the type would
// show the error, and the variance is taken from the deviations.
constexpr float kLeastShare = sizeof(dtype_t) == 4 ? 0.5f : 1.0f / 32;

// The numbers that normalise a row.
struct Normal {
  float mean;
  float variance;
  bool far;  // the mean is so far from 0 that deviations must be added up

  __device__ __forceinline__ Normal() = default;
  __device__ __forceinline__ Normal(float sum, float squares) {
    mean = sum * (1.0f / columns);
    const float mean_square = squares * (1.0f / columns);
    variance = mean_square - mean * mean;
    far = !(variance >= kLeastShare * mean_square);
  }
  // Corrects the mean and the variance by the sums of the differences from the mean, and of their
  // squares.
  __device__ __forceinline__ void correct(float sum, float squares) {
    const float distance = sum * (1.0f / columns);
    mean += distance;
    variance = squares * (1.0f / columns) - distance * distance;
  }
};

__device__ __forceinline__ void finish(const Vector& x, const Vector& w, const Vector& b,
                                       float mean, float scale, float (&value)[kLanes]) {
  // The multiplication of 16-bit elements subtracts the mean too, which saves an instruction. This
  // rounds mean * scale, which costs no more than the rounding of the mean itself.
  const float offset = -mean * scale;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    const float element = lane<dtype_t>(x, i);
    value[i] = sizeof(dtype_t) == 2 ? fmaf(element, scale, offset) : (element - mean) * scale;
    if constexpr (kScales) value[i] *= lane<dtype_t>(w, i);
    if constexpr (kShifts) value[i] += lane<dtype_t>(b, i);
  }
}

// Adds the deviations of the row's lanes of x, and their squares. x is hidden, because the compiler
// would keep rows unpacked from their first use to this one.
__device__ __forceinline__ void add_deviations(Vector x, const Lanes& lanes, float mean, float& sum,
                                               float& squares) {
  hide_from_optimizer(x);
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    if (!lanes.has(i)) continue;
    const float d = lane<dtype_t>(x, i) - mean;
    sum += d;
    squares += d * d;
  }
}

// Calls work(step) for the vectors that are not kept. They are read for sums, and once more to be
// written.
template <typename Work>
__device__ __forceinline__ void for_the_rest(const Feed& feed, const Share& share,
                                             const Work& work) {
  if constexpr (KEPT < STEPS) {
    if (!feed.active()) return;
#pragma unroll 4
    for (int step = KEPT; step < STEPS; ++step) {
      if (share.has(step)) work(step);
    }
  }
}

// The results of a group's rows, which begin at element `first`.
struct Results {
  const dtype_t* written;  // the input of the norm
  long long first;
  const Feed& feed;
  const Share& share;
  const Weights<kScales, 0>& weights;
  const Weights<kShifts, kScales>& biases;
  const Vector (&kept)[ROWS_AT_ONCE][KEPT];
  const Normal (&normal)[ROWS_AT_ONCE];
  const float (&scale)[ROWS_AT_ONCE];

  // Calls work(row, step, values) for all vectors that the thread has. Those that are not kept are
  // read again.
  template <int Words = 0, typename Work>
  __device__ __forceinline__ void for_each(const Work& work) const {
    if constexpr (kWordsVary && Words + Row::kWordStep < Row::kWords) {
      if (Row::whole_words(share.skew()) > Words) return for_each<Words + Row::kWordStep>(work);
    }
    float value[kLanes];
#pragma unroll
    for (int step = 0; step < KEPT; ++step) {
      if (!share.has(step)) continue;
      const Vector w_of_step = weights.at<Words>(step, feed);
      const Vector b_of_step = biases.at<Words>(step, feed);
#pragma unroll
      for (int i = 0; i < ROWS_AT_ONCE; ++i) {
        finish(kept[i][step], w_of_step, b_of_step, normal[i].mean, scale[i], value);
        work(i, step, value);
      }
    }
    for_the_rest(feed, share, [&](int step) {
      finish(share.load_from<Load::plain>(written + first, step), weights.at<Words>(step, feed),
             biases.at<Words>(step, feed), normal[0].mean, scale[0], value);
      work(0, step, value);
    });
  }
};

// Brings each row to mean 0 and variance 1. x and r may be overwritten in place: a thread reads its
// elements before it writes them.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    layernorm_row(KW_PARAMETERS(layernorm_row)) {
  const dtype_t* tensors[STREAMS] = {x};
  if constexpr (kAdds) tensors[STREAMS - 1] = r;
  Share share;
  Weights<kScales, 0> weights(w, share);
  Weights<kShifts, kScales> biases(b, share);
  if (blockIdx.x < early) {
    weights.prefetch();
    biases.prefetch();
  }
  release_next_kernel();
  await_previous_kernel();
  const float unit = quantize == quantize_tensor ? 1 / *given_scale : 1;
  Feed feed(tensors, rows, share);
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

    const dtype_t* const written = kAdds ? sum : x;

    Sums::Value part;
#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; ++i) {
      rows::VectorSums<dtype_t, TENSOR_SUMS != 0> sums;
#pragma unroll
      for (int step = 0; step < KEPT; ++step) {
        if constexpr (kAdds) {
          kept[i][step] = add(kept[i][step], added[i][step]);
          if (feed.active(i) && share.has(step)) {
            share.store_to(sum + first + i * columns, step, kept[i][step]);
          }
        }
        sums.add(kept[i][step]);
      }
      for_the_rest(feed, share, [&](int step) {
        Vector rest = share.load_from<Load::plain>(x + first, step);
        if constexpr (kAdds) {
          rest = add(rest, share.load_from<Load::plain>(r + first, step));
          share.store_to(sum + first, step, rest);
        }
        sums.add_alone(rest);
      });
      part.of[2 * i] = sums.elements();
      part.of[2 * i + 1] = sums.squares();
    }
    const Sums::Value all = feed.reduce<Sums>(part);

    Normal normal[ROWS_AT_ONCE];
    bool some_are_far = false;
#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; ++i) {
      normal[i] = Normal(all.of[2 * i], all.of[2 * i + 1]);
      some_are_far |= normal[i].far;
    }
    some_are_far = __any_sync(0xffffffffu, some_are_far);
    if (some_are_far) {
      part = Sums::identity();
#pragma unroll
      for (int i = 0; i < ROWS_AT_ONCE; ++i) {
        if (!feed.active(i)) continue;
        const auto add_one = [&](const Vector& v, int step) {
          add_deviations(v, share.lanes(step), normal[i].mean, part.of[2 * i], part.of[2 * i + 1]);
        };
#pragma unroll
        for (int step = 0; step < KEPT; ++step) {
          if (share.has(step)) add_one(kept[i][step], step);
        }
        for_the_rest(feed, share, [&](int step) {
          add_one(share.load_from<Load::plain>(written + first, step), step);
        });
      }
      const Sums::Value deviations = feed.reduce_again<Sums>(part);
#pragma unroll
      for (int i = 0; i < ROWS_AT_ONCE; ++i) {
        if (normal[i].far) normal[i].correct(deviations.of[2 * i], deviations.of[2 * i + 1]);
      }
    }
    float scale[ROWS_AT_ONCE];
#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; ++i) scale[i] = rsqrtf(normal[i].variance + eps);
    weights.await(feed);
    biases.await(feed);
    const Results results{written, first, feed, share, weights, biases, kept, normal, scale};
    float factor[ROWS_AT_ONCE];
#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; ++i) {
      factor[i] = unit;
    }
    if constexpr (kFindsScale) {
      Mosts::Value most{};
      results.for_each([&](int i, int step, const float(&value)[kLanes]) {
        const Lanes lanes = share.lanes(step);
#pragma unroll
        for (int j = 0; j < kLanes; ++j) {
          if (lanes.has(j)) most.of[i] = larger(most.of[i], fabsf(value[j]));
        }
      });
      most = feed.reduce_again<Mosts>(most);
#pragma unroll
      for (int i = 0; i < ROWS_AT_ONCE; ++i) {
        const float of_row = row_scale<out_t>(most.of[i], scale_least);
        if (feed.active(i) && share.leads()) y_scale[feed.row() + i] = of_row;
        factor[i] = 1 / of_row;
#pragma unroll
        for (int step = 0; step < KEPT; ++step) hide_from_assembler(kept[i][step]);
      }
    }
    if (!feed.active()) continue;

    results.for_each([&](int i, int step, const float(&value)[kLanes]) {
      float code[kLanes];
#pragma unroll
      for (int j = 0; j < kLanes; ++j) code[j] = value[j] * factor[i];
      if (feed.active(i)) share.store_to(y + first + i * columns, step, code);
    });
  } while (feed.next());
}
