#include <kernwright/config.cuh>
#include <kernwright/math/reduce.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/quantized/row_scale.cuh>

using namespace kernwright;
using namespace kernwright::config;

constexpr Store kStore = STREAMING ? Store::streaming : Store::plain;
constexpr int kVectors = LANES / VECTOR;  // of a thread in a group

constexpr int kVectorBytes = VECTOR * sizeof(dtype_t);

// Neighbouring threads have the LANES elements each of a group, then the next group of the row. The
// groups of a thread are BLOCK_GROUPS apart. A vector exists as a whole or not at all.
extern "C" __global__ void __launch_bounds__(THREADS)
    quantize_rows_streamed(KW_PARAMETERS(quantize_rows_streamed)) {
  release_next_kernel();
  const int place = threadIdx.x % GROUP_THREADS * LANES;  // in the group
  const long long own =
      static_cast<long long>(blockIdx.x) * (BLOCK_GROUPS * ITEMS) + threadIdx.x / GROUP_THREADS;
  const long long count = rows * GROUPS;
  await_previous_kernel();
  Packed<kVectorBytes> vectors[ITEMS][kVectors] = {};
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const long long number = own + i * BLOCK_GROUPS;
    const long long row = number / GROUPS;
    const int column = static_cast<int>(number % GROUPS) * 128 + place;
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      if (number < count && column + j * VECTOR < columns) {
        vectors[i][j] =
            load<Load::read_only, kVectorBytes>(x + row * columns + column + j * VECTOR);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    float value[LANES];
    float most = 0;
#pragma unroll
    for (int e = 0; e < LANES; ++e) {
      value[e] = lane<dtype_t>(vectors[i][e / VECTOR], e % VECTOR);
      most = larger(most, fabsf(value[e]));
    }
    most = warp_reduce<Max, GROUP_THREADS>(most);
    const long long number = own + i * BLOCK_GROUPS;
    if (number >= count) continue;
    const long long row = number / GROUPS;
    const int group_of_row = static_cast<int>(number % GROUPS);
    const int column = group_of_row * 128 + place;
    const float of_group = row_scale<out_t>(most, scale_least);
    if (place == 0) scale[group_of_row * rows + row] = of_group;
    const float factor = 1 / of_group;
#pragma unroll
    for (float& v : value) v *= factor;
    out_t* const to = q + row * columns + column;
#pragma unroll
    for (int j = 0; j < LANES; j += PIECE) {
      float piece[PIECE];
#pragma unroll
      for (int e = 0; e < PIECE; ++e) piece[e] = value[j + e];
      if (column + j < columns) store_elements<kStore>(to + j, piece);
    }
  }
}
