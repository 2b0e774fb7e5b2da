#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/matmul/group_drawing.cuh>

using namespace kernwright;
using namespace kernwright::config;

// Every kernel goes through the groups and their rows, and fills the tensors that are passed. The
// rows of a that belong to no group are left as they are; such rows of d hold a number that shows
// when it is overwritten.

enum Set { kTiming, kExact };
// Streams of random numbers: each quantity has its own, and GroupDraw has two.
enum Stream { kRow, kWeight, kRowScale = 4, kWeightScale, kRowOf, kBias };

constexpr float kUnwritten = 777;
constexpr int kStack = gate == gate_none ? 1 : 2;  // rows of b for a column of d

struct Draw {
  Set set;
  unsigned long long seed;
  dtype_t *a, *b;
  float *scale_a, *scale_b;
  out_t* bias;
  int *row_of, *ends, *counts;
  out_t* d;
  long long groups, rows, n, k, room, tokens;

  __device__ unsigned long long bits(Stream stream, long long place) const {
    return hash_at(hash_at(seed, stream), static_cast<unsigned long long>(place));
  }

  __device__ float element(Stream stream, long long place) const {
    const unsigned long long random = bits(stream, place);
    return set == kExact ? static_cast<float>(random % 7) - 3 : normal(random);
  }

  // Returns a scale, in an exact set a power of two.
  __device__ float scale(Stream stream, long long place) const {
    const unsigned long long random = bits(stream, place);
    return set == kExact ? static_cast<float>(1 << random % 3)
                         : 0.5f + 1.5f * static_cast<float>(random >> 40) * 0x1p-24f;
  }

  // Fills a row of a, by a block.
  __device__ void fill_row(long long row) const {
    for (long long c = threadIdx.x; c < k; c += blockDim.x) {
      a[row * k + c] = from_float<dtype_t>(element(kRow, row * k + c));
    }
  }

  // Fills the scales of rows by their places: a group has `room` places, or the rows of all
  // groups follow each other.
  __device__ void fill_scales(long long first_thread, long long stride, long long places) const {
    const long long blocks_of_k = (k + 127) / 128;
    for (long long i = first_thread; scale_a && i < places * blocks_of_k; i += stride) {
      scale_a[i] = scale(kRowScale, i);
    }
    const long long count = groups * ((kStack * n + 127) / 128) * blocks_of_k;
    for (long long i = first_thread; scale_b && i < count; i += stride) {
      scale_b[i] = scale(kWeightScale, i);
    }
  }

  __device__ void run() const {
    const bool is_masked = layout == layout_masked;
    const long long first_thread = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    const GroupDraw shares(seed, set == kTiming, groups, rows, room);
    shares.each(ends, counts, [&](long long g, long long first, long long count) {
      if (!a || a_rows == a_rows_indexed) return;
      for (long long r = (blockIdx.x + g) % gridDim.x; r < count; r += gridDim.x) {
        fill_row(first + r);
      }
    });
    if (a && a_rows == a_rows_indexed) {
      for (long long r = blockIdx.x; r < tokens; r += gridDim.x) fill_row(r);
    }
    const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
    const long long places = is_masked ? groups * room : rows;
    fill_scales(first_thread, stride, places);
    for (long long i = first_thread; b && i < groups * kStack * n * k; i += stride) {
      b[i] = from_float<dtype_t>(element(kWeight, i));
    }
    for (long long i = first_thread; bias && i < groups * kStack * n; i += stride) {
      bias[i] = from_float<out_t>(element(kBias, i));
    }
    for (long long i = first_thread; row_of && i < rows; i += stride) {
      row_of[i] = static_cast<int>(bits(kRowOf, i) % static_cast<unsigned long long>(tokens));
    }
    for (long long i = first_thread; d && i < places * n; i += stride) {
      d[i] = from_float<out_t>(kUnwritten);
    }
  }
};

#define DRAW(set)                                      \
  Draw{set,     static_cast<unsigned long long>(seed), \
       a,       b,                                     \
       scale_a, scale_b,                               \
       bias,    row_of,                                \
       ends,    counts,                                \
       d,       groups,                                \
       rows,    n,                                     \
       k,       room,                                  \
       tokens}                                         \
      .run()

// Draws normal numbers everywhere, with groups of unlike sizes.
extern "C" __global__ void grouped_matmul_timing(KW_PARAMETERS(grouped_matmul_timing)) {
  DRAW(kTiming);
}

// Draws small integers. Groups are even, or many are empty, or one has all rows, or rows at the end
// belong to no group.
extern "C" __global__ void grouped_matmul_exact(KW_PARAMETERS(grouped_matmul_exact)) {
  DRAW(kExact);
}
