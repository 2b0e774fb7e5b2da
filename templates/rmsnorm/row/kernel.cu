#include <kernwright/quantized/row_scale.cuh>
#include <kernwright/rows/manifest_row.cuh>

using namespace kernwright;
using namespace kernwright::row;

constexpr bool kAdds = residual == residual_add;
constexpr bool kScales = weight == weight_scale;
constexpr bool kFindsScale = quantize == quantize_row;

using Sums = Each<Sum, ROWS_AT_ONCE>;
using Mosts = Each<Max, ROWS_AT_ONCE>;

// True if a thread's rows fit its registers unpacked. Beside them each row takes 4 registers and
// the rest of the kernel 16. Weights that are shifted take 32, for the vectors of several steps.
// The largest products of rows that are quantized take more than that.
constexpr bool kFitsUnpacked =
    !kFindsScale && KEPT * (ROWS_AT_ONCE * kLanes + (EARLY - HELD) * (VECTOR_BYTES / 4)) +
                            4 * ROWS_AT_ONCE + 16 + (Row::kSkewed && kScales ? 32 : 0) <=
                        65536 / (MIN_BLOCKS * THREADS);

// Stands between the uses of x before and after the reduction. Values that were unpacked for the
// first use are then unpacked again for the second, since keeping them would spill them.
__device__ __forceinline__ void keep_packed(Vector (&x)[ROWS_AT_ONCE][KEPT]) {
  if constexpr (kFitsUnpacked) return;
#pragma unroll
  for (int i = 0; i < ROWS_AT_ONCE; ++i) {
#pragma unroll
    for (int step = 0; step < KEPT; ++step) {
      hide_from_assembler(x[i][step]);
    }
  }
}

__device__ __forceinline__ float squares(const Vector& x) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    const float v = lane<dtype_t>(x, i);
    sum += v * v;
  }
  return sum;
}

// Computes a vector of the result, or with a factor of 1 x times w.
__device__ __forceinline__ void multiply(const Vector& x, const Vector& w, float factor,
                                         float (&value)[kLanes]) {
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    value[i] = lane<dtype_t>(x, i) * factor;
    if constexpr (kScales) value[i] *= lane<dtype_t>(w, i);
  }
}

__device__ __forceinline__ void write(out_t* row, bool active, const Share& share, int step,
                                      const Vector& x, const Vector& w, float factor) {
  float value[kLanes];
  multiply(x, w, factor, value);
  if (active) share.store_to(row, step, value);
}

// Finds the largest |x w| of a group's rows, by which their scales follow in the exchange of the
// squares: the root is the same for all of a row. The rest is as in write_rows.
template <int Words = 0>
__device__ __forceinline__ Mosts::Value largest_products(const dtype_t* written, long long first,
                                                         const Feed& feed, const Share& share,
                                                         const Weights<kScales, 0>& weights,
                                                         const Vector (&kept)[ROWS_AT_ONCE][KEPT]) {
  if constexpr (Weights<kScales, 0>::kWordsVary && Words + Row::kWordStep < Row::kWords) {
    if (Row::whole_words(share.skew()) > Words) {
      return largest_products<Words + Row::kWordStep>(written, first, feed, share, weights, kept);
    }
  }
  Mosts::Value most{};
  float value[kLanes];
#pragma unroll
  for (int step = 0; step < KEPT; ++step) {
    if (!share.has(step)) continue;
    const Vector w_of_step = weights.at<Words>(step, feed);
#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; ++i) {
      multiply(kept[i][step], w_of_step, 1, value);
      most.of[i] = largest(value, most.of[i]);
    }
  }
  if constexpr (KEPT < STEPS) {
    if (feed.active()) {
#pragma unroll 4
      for (int step = KEPT; step < STEPS; ++step) {
        if (!share.has(step)) continue;
        multiply(share.load_from<Load::plain>(written + first, step), weights.at<Words>(step, feed),
                 1, value);
        most.of[0] = largest(value, most.of[0]);
      }
    }
  }
  return most;
}

// Writes a group's rows, which begin at element `first`. Vectors that are not kept are read again
// from `written`, which holds the input of the norm.
template <int Words = 0>
__device__ __forceinline__ void write_rows(out_t* y, const dtype_t* written, long long first,
                                           const Feed& feed, const Share& share,
                                           const Weights<kScales, 0>& weights,
                                           const Vector (&kept)[ROWS_AT_ONCE][KEPT],
                                           const float (&factor)[ROWS_AT_ONCE]) {
  if constexpr (Weights<kScales, 0>::kWordsVary && Words + Row::kWordStep < Row::kWords) {
    if (Row::whole_words(share.skew()) > Words) {
      return write_rows<Words + Row::kWordStep>(y, written, first, feed, share, weights, kept,
                                                factor);
    }
  }
#pragma unroll
  for (int step = 0; step < KEPT; ++step) {
    if (!share.has(step)) continue;
    const Vector w_of_step = weights.at<Words>(step, feed);
#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; ++i) {
      write(y + first + i * columns, feed.active(i), share, step, kept[i][step], w_of_step,
            factor[i]);
    }
  }
  if constexpr (KEPT < STEPS) {
#pragma unroll 4
    for (int step = KEPT; step < STEPS; ++step) {
      if (!share.has(step)) continue;
      const Vector rest = share.load_from<Load::plain>(written + first, step);
      write(y + first, true, share, step, rest, weights.at<Words>(step, feed), factor[0]);
    }
  }
}

// Writes the result of a scale of 0 for all rows, whatever x and w hold: zeros, and the sums as
// always. This is a function of its own because a choice for every element would take more
// registers than the other way.
__device__ __forceinline__ void write_zeros(const dtype_t* x, const dtype_t* r, out_t* y,
                                            dtype_t* sum, long long row_count, Share& share) {
  constexpr int kRows = ROWS_PER_BLOCK * ROWS_AT_ONCE;
  const long long stride = static_cast<long long>(gridDim.x / CLUSTER) * kRows;
#pragma unroll 1
  for (long long block_row = static_cast<long long>(blockIdx.x / CLUSTER) * kRows;
       block_row < row_count; block_row += stride) {
#pragma unroll 1
    for (int i = 0; i < ROWS_AT_ONCE; ++i) {
      const long long row = block_row + threadIdx.x / THREADS_PER_ROW * ROWS_AT_ONCE + i;
      if (row >= row_count) break;
      share.follow(row, row_count);
      const long long first = row * columns;
#pragma unroll 1
      for (int step = 0; step < STEPS; ++step) {
        if (!share.has(step)) continue;
        if constexpr (kAdds) {
          share.store_to(sum + first, step,
                         add(share.load_from<Load::plain>(x + first, step),
                             share.load_from<Load::plain>(r + first, step)));
        }
        const float zeros[kLanes] = {};
        share.store_to(y + first, step, zeros);
      }
    }
  }
}

// Normalises each row by its root mean square. x and r may be overwritten in place: a thread reads
// its elements before it writes them.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    rmsnorm_row(KW_PARAMETERS(rmsnorm_row)) {
  const dtype_t* tensors[STREAMS] = {x};
  if constexpr (kAdds) tensors[STREAMS - 1] = r;
  Share share;
  Weights<kScales, 0> weights(w, share);
  if (blockIdx.x < early) weights.prefetch();
  release_next_kernel();
  await_previous_kernel();
  if (quantize == quantize_none && scale == 0) return write_zeros(x, r, y, sum, rows, share);
  const float unit = quantize == quantize_tensor ? 1 / *given_scale : scale;
  Feed feed(tensors, rows, share);
  weights.hold(feed);

  do {
    const long long first = feed.first();
    Vector kept[ROWS_AT_ONCE][KEPT];
    Vector added[ROWS_AT_ONCE][KEPT];
    feed.load(kept, 0);
    if constexpr (kAdds) feed.load(added, 1);
    weights.load_early();

    Sums::Value part = Sums::identity();
#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; ++i) {
#pragma unroll
      for (int step = 0; step < KEPT; ++step) {
        if constexpr (kAdds) {
          kept[i][step] = add(kept[i][step], added[i][step]);
          if (feed.active(i) && share.has(step)) {
            share.store_to(sum + first + i * columns, step, kept[i][step]);
          }
        }
        part.of[i] += squares(kept[i][step]);
      }
    }
    if constexpr (KEPT < STEPS) {  // the rest is read now, and once more to be written
      if (feed.active()) {
#pragma unroll 4
        for (int step = KEPT; step < STEPS; ++step) {
          if (!share.has(step)) continue;
          Vector rest = share.load_from<Load::plain>(x + first, step);
          if constexpr (kAdds) {
            rest = add(rest, share.load_from<Load::plain>(r + first, step));
            share.store_to(sum + first, step, rest);
          }
          part.of[0] += squares(rest);
        }
      }
    }
    const dtype_t* const written = kAdds ? sum : x;
    Sums::Value all;
    Mosts::Value most;
    if constexpr (kFindsScale) {
      weights.await(feed);
      keep_packed(kept);
      const auto found = feed.reduce<Both<Sums, Mosts>>(
          {part, largest_products(written, first, feed, share, weights, kept)});
      all = found.first;
      most = found.second;
    } else {
      all = feed.reduce<Sums>(part);
      weights.await(feed);
    }
    float factor[ROWS_AT_ONCE];
#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; ++i) {
      factor[i] = unit * rsqrtf(all.of[i] * (1.0f / columns) + eps);
      if constexpr (kFindsScale) {
        const float of_row = row_scale<out_t>(factor[i] * most.of[i], scale_least);
        if (feed.active(i) && share.leads()) y_scale[feed.row() + i] = of_row;
        factor[i] *= 1 / of_row;
      }
    }
    if (!feed.active()) continue;

    keep_packed(kept);
    write_rows(y, written, first, feed, share, weights, kept, factor);
  } while (feed.next());
}
