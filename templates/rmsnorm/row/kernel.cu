#include <kernwright/row_weights.cuh>

using namespace kernwright;
using namespace kernwright::row;

constexpr bool kAdds = residual == residual_add;
constexpr bool kScales = weight == weight_scale;

using Sums = Each<Sum, ROWS_AT_ONCE>;

// Whether the registers of a thread take its rows unpacked, beside 4 for each and 16 for the rest.
constexpr bool kFitsUnpacked =
    KEPT * (ROWS_AT_ONCE * kLanes + (EARLY - HELD) * (VECTOR_BYTES < 4 ? 1 : VECTOR_BYTES / 4)) +
        4 * ROWS_AT_ONCE + 16 <=
    65536 / (MIN_BLOCKS * THREADS);

// Between the uses of rows before and after the reduction: values that were unpacked for the first
// are not kept for the second where that would spill them. The compiler cannot know that grids of
// one dimension have no second layer, so that it takes x for changed.
__device__ __forceinline__ void keep_packed(Vector (&x)[ROWS_AT_ONCE][KEPT]) {
  if constexpr (kFitsUnpacked) return;
#pragma unroll
  for (int i = 0; i < ROWS_AT_ONCE; ++i) {
#pragma unroll
    for (int step = 0; step < KEPT; ++step) {
      for (unsigned& word : x[i][step].word) word |= blockIdx.z;
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

__device__ __forceinline__ void write(out_t* y, bool active, const Vector& x, const Vector& w,
                                      float factor) {
  float value[kLanes];
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    value[i] = lane<dtype_t>(x, i) * factor;
    if constexpr (kScales) value[i] *= lane<dtype_t>(w, i);
  }
  if (active) store_elements<Store::plain>(y, value);
}

// What a scale of 0 makes of all rows, whatever x and w hold: zeros, and the sums as ever. Apart
// from the rest, whose registers a choice for every element would pass.
__device__ __forceinline__ void write_zeros(const dtype_t* x, const dtype_t* r, out_t* y,
                                            dtype_t* sum, long long row_count, const Share& share) {
  constexpr int kRows = ROWS_PER_BLOCK * ROWS_AT_ONCE;
  const long long stride = static_cast<long long>(gridDim.x / CLUSTER) * kRows;
  release_next_kernel();
  await_previous_kernel();
#pragma unroll 1
  for (long long block_row = static_cast<long long>(blockIdx.x / CLUSTER) * kRows;
       block_row < row_count; block_row += stride) {
#pragma unroll 1
    for (int i = 0; i < ROWS_AT_ONCE; ++i) {
      const long long row = block_row + threadIdx.x / THREADS_PER_ROW * ROWS_AT_ONCE + i;
      if (row >= row_count) break;
#pragma unroll 1
      for (int step = 0; step < STEPS; ++step) {
        if (!share.has(step)) continue;
        const long long at = row * columns + share.column(step);
        if constexpr (kAdds) {
          store<Store::plain>(sum + at, add(load<Load::plain, VECTOR_BYTES>(x + at),
                                            load<Load::plain, VECTOR_BYTES>(r + at)));
        }
        const float zeros[kLanes] = {};
        store_elements<Store::plain>(y + at, zeros);
      }
    }
  }
}

// Each row is normalised by its root mean square. x and r may be overwritten in place: a thread
// reads its elements before it writes them.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    rmsnorm_row(const dtype_t* x, const dtype_t* r, const dtype_t* w, out_t* y, dtype_t* sum,
                long long row_count, float epsilon, float scale, unsigned early_blocks) {
  const dtype_t* tensors[STREAMS] = {x};
  if constexpr (kAdds) tensors[STREAMS - 1] = r;
  const Share share;
  Weights<kScales, 0> weights(w, share);
  if (scale == 0) return write_zeros(x, r, y, sum, row_count, share);
  if (blockIdx.x < early_blocks) weights.prefetch();
  WeightedFeed feed(tensors, row_count, share);
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
            store<Store::plain>(sum + first + i * columns + share.column(step), kept[i][step]);
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
          const long long at = first + share.column(step);
          Vector rest = load<Load::plain, VECTOR_BYTES>(x + at);
          if constexpr (kAdds) {
            rest = add(rest, load<Load::plain, VECTOR_BYTES>(r + at));
            store<Store::plain>(sum + at, rest);
          }
          part.of[0] += squares(rest);
        }
      }
    }
    const Sums::Value all = feed.reduce<Sums>(part);
    float factor[ROWS_AT_ONCE];
#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; ++i) {
      factor[i] = scale * rsqrtf(all.of[i] * (1.0f / columns) + epsilon);
    }
    weights.await(feed);
    if (!feed.active()) continue;

    keep_packed(kept);
#pragma unroll
    for (int step = 0; step < KEPT; ++step) {
      if (!share.has(step)) continue;
      const Vector w_of_step = weights.at(step, feed);
#pragma unroll
      for (int i = 0; i < ROWS_AT_ONCE; ++i) {
        write(y + first + i * columns + share.column(step), feed.active(i), kept[i][step],
              w_of_step, factor[i]);
      }
    }
    if constexpr (KEPT < STEPS) {
#pragma unroll 4
      for (int step = KEPT; step < STEPS; ++step) {
        if (!share.has(step)) continue;
        const long long at = first + share.column(step);
        write(y + at, true, load<Load::plain, VECTOR_BYTES>((kAdds ? sum : x) + at),
              weights.at(step, feed), factor[0]);
      }
    }
  } while (feed.next());
}
