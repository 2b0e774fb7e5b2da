#include <kernwright/config.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/programmatic.cuh>

using namespace kernwright;
using namespace kernwright::config;

using Vector = Packed<VECTOR_BYTES>;

constexpr int kLanes = VECTOR_BYTES / sizeof(dtype_t);
constexpr Store kStore = STREAMING ? Store::streaming : Store::plain;

// Neighbouring threads have the vectors of a token; the vectors of a thread are TASKS apart. A
// thread asks for the rows of BATCH experts before it adds the first. Each element of `out` is
// written by the thread that has read it, so it may be the memory of `shared` or `residual`.
extern "C" __global__ void __launch_bounds__(THREADS)
    combine_experts_streamed(KW_PARAMETERS(combine_experts_streamed)) {
  release_next_kernel();
  const long long task = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  const long long token = task / TASKS;
  const int own = static_cast<int>(task % TASKS);
  await_previous_kernel();
  if (token >= token_count) return;

  const int* const places = place + token * top;
  float sum[ITEMS][kLanes] = {};
#pragma unroll
  for (int first = 0; first < top; first += BATCH) {
    Vector read[BATCH][ITEMS];
    int row[BATCH];
#pragma unroll
    for (int j = 0; j < BATCH; ++j) row[j] = first + j < top ? __ldg(places + first + j) : -1;
#pragma unroll
    for (int j = 0; j < BATCH; ++j) {
      const dtype_t* const from = y + static_cast<long long>(row[j]) * columns;
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) {
        const int vector = own + i * TASKS;
        if (row[j] >= 0 && vector < VECTORS) {
          read[j][i] = load<Load::no_allocate, VECTOR_BYTES>(from + vector * kLanes);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < BATCH; ++j) {
      if (row[j] < 0) continue;
      float weight = 1;
      if constexpr (config::weights == weights_given) {
        weight = __ldg(weights + token * top + first + j);
      }
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) {
#pragma unroll
        for (int k = 0; k < kLanes; ++k) {
          sum[i][k] = fmaf(weight, lane<dtype_t>(read[j][i], k), sum[i][k]);
        }
      }
    }
  }

#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int vector = own + i * TASKS;
    if (vector >= VECTORS) continue;
    const long long at = token * columns + vector * kLanes;
    const auto add = [&](const dtype_t* from) {
      const Vector x = load<Load::plain, VECTOR_BYTES>(from + at);
#pragma unroll
      for (int k = 0; k < kLanes; ++k) sum[i][k] += lane<dtype_t>(x, k);
    };
    if constexpr (config::shared == shared_add) add(shared);
    if constexpr (config::residual == residual_add) add(residual);
    store<kStore>(out + at, pack<dtype_t, VECTOR_BYTES>(sum[i]));
  }
}
