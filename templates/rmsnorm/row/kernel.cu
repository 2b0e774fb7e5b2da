#include <kernwright/config.cuh>
#include <kernwright/reduce.cuh>
#include <kernwright/vector.cuh>

using namespace kernwright;
using namespace kernwright::config;

using Vector = Packed<VECTOR_BYTES>;

constexpr int kLanes = VECTOR_BYTES / sizeof(dtype_t);
constexpr int kWarpsPerRow = THREADS_PER_ROW <= 32 ? 1 : THREADS_PER_ROW / 32;
constexpr Store kStore = STREAMING ? Store::streaming : Store::plain;

// Whether step `step` of this thread lies inside the row: known to the compiler for all but the
// last.
__device__ __forceinline__ bool inside(int step, int thread) {
  return (step + 1) * THREADS_PER_ROW <= ROW_VECTORS ||
         step * THREADS_PER_ROW + thread < ROW_VECTORS;
}

__device__ __forceinline__ const dtype_t* at(const dtype_t* row, int step, int thread) {
  return row + static_cast<long long>(step * THREADS_PER_ROW + thread) * kLanes;
}

__device__ __forceinline__ void load_row(Vector (&x)[KEPT], const dtype_t* row, int thread) {
#pragma unroll
  for (int s = 0; s < KEPT; ++s) {
    x[s] = Vector{};
    if (inside(s, thread)) x[s] = load<Load::no_allocate, VECTOR_BYTES>(at(row, s, thread));
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

__device__ __forceinline__ void write(dtype_t* y, int step, int thread, const Vector& x,
                                      const Vector& w, float scale) {
  float value[kLanes];
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    value[i] = lane<dtype_t>(x, i) * scale;
    if constexpr (weight == weight_scale) value[i] *= lane<dtype_t>(w, i);
  }
  store<kStore>(const_cast<dtype_t*>(at(y, step, thread)), pack<dtype_t, VECTOR_BYTES>(value));
}

__device__ __forceinline__ Vector load_weight(const dtype_t* w, int step, int thread) {
  if constexpr (weight == weight_scale) {
    return load<Load::read_only, VECTOR_BYTES>(at(w, step, thread));
  } else {
    return Vector{};
  }
}

// A group of THREADS_PER_ROW threads owns one row at a time; a block owns ROWS_PER_BLOCK rows.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    rmsnorm_row(const dtype_t* __restrict__ x, const dtype_t* __restrict__ w,
                dtype_t* __restrict__ y, long long row_count, float epsilon) {
  __shared__ float parts[2][ROWS_PER_BLOCK][kWarpsPerRow];
  const int thread = threadIdx.x % THREADS_PER_ROW;
  const int group = threadIdx.x / THREADS_PER_ROW;
  const long long stride = static_cast<long long>(gridDim.x) * ROWS_PER_BLOCK;
  const long long block_row = static_cast<long long>(blockIdx.x) * ROWS_PER_BLOCK;

  Vector kept[KEPT];
  Vector weights[KEPT];
  if (block_row + group < row_count) load_row(kept, x + (block_row + group) * columns, thread);
  if constexpr (WEIGHT_RESIDENT) {
#pragma unroll
    for (int s = 0; s < KEPT; ++s) {
      if (inside(s, thread)) weights[s] = load_weight(w, s, thread);
    }
  }

  int parity = 0;
  // Every group of a block makes every turn, with or without a row: barriers and shuffles need them
  // all.
#pragma unroll 1
  for (long long first = block_row; first < row_count; first += stride, parity ^= 1) {
    const long long row = first + group;
    const bool active = row < row_count;
    const bool more = row + stride < row_count;
    const dtype_t* const source = x + row * columns;
    Vector next[KEPT];
    if constexpr (PREFETCH) {
      if (more) load_row(next, source + stride * columns, thread);
    }

    float sum = 0;
    if (active) {
#pragma unroll
      for (int s = 0; s < KEPT; ++s) sum += squares(kept[s]);
#pragma unroll 4
      for (int s = KEPT; s < STEPS; ++s) {
        if (inside(s, thread))
          sum += squares(load<Load::read_only, VECTOR_BYTES>(at(source, s, thread)));
      }
    }
    if constexpr (THREADS_PER_ROW <= 32) {
      sum = warp_sum<THREADS_PER_ROW>(sum);
    } else {
      sum = group_sum<kWarpsPerRow>(sum, parts[parity][group]);
    }
    const float scale = rsqrtf(sum * (1.0f / columns) + epsilon);

    if (active) {
      dtype_t* const target = y + row * columns;
#pragma unroll
      for (int s = 0; s < KEPT; ++s) {
        if (inside(s, thread)) {
          Vector factor;
          if constexpr (WEIGHT_RESIDENT) {
            factor = weights[s];
          } else {
            factor = load_weight(w, s, thread);
          }
          write(target, s, thread, kept[s], factor, scale);
        }
      }
#pragma unroll 4
      for (int s = KEPT; s < STEPS; ++s) {
        if (inside(s, thread)) {
          write(target, s, thread, load<Load::read_only, VECTOR_BYTES>(at(source, s, thread)),
                load_weight(w, s, thread), scale);
        }
      }
    }
    if constexpr (PREFETCH) {
#pragma unroll
      for (int s = 0; s < KEPT; ++s) kept[s] = next[s];
    } else {
      if (more) load_row(kept, source + stride * columns, thread);
    }
  }
}
