#include <kernwright/config.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/programmatic.cuh>

using namespace kernwright;
using namespace kernwright::config;

constexpr Load kLoad = NO_ALLOCATE ? Load::no_allocate : Load::read_only;
constexpr Store kStore = STREAMING ? Store::streaming : Store::plain;

// Takes one tile after another, of which `rest` elements exist. All loads are issued before the
// first is used, because the bytes in flight decide the rate, not the occupancy.
extern "C" __global__ void __launch_bounds__(THREADS)
    vector_add_vectorized(KW_PARAMETERS(vector_add_vectorized)) {
  release_next_kernel();
  await_previous_kernel();
  const long long stride = static_cast<long long>(gridDim.x) * TILE;
#pragma unroll 1
  for (long long tile = static_cast<long long>(blockIdx.x) * TILE; tile < n; tile += stride) {
    const int rest = static_cast<int>(::min(n - tile, static_cast<long long>(TILE)));
    Packed<16> x[VECTORS];
    Packed<16> y[VECTORS];
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      const int i = (v * THREADS + threadIdx.x) * VECTOR;
      if (i + VECTOR <= rest) {
        x[v] = load<kLoad, 16>(a + tile + i);
        y[v] = load<kLoad, 16>(b + tile + i);
      }
    }
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      const int i = (v * THREADS + threadIdx.x) * VECTOR;
      if (i + VECTOR <= rest) {
        float sum[VECTOR];
#pragma unroll
        for (int j = 0; j < VECTOR; ++j) sum[j] = lane<dtype_t>(x[v], j) + lane<dtype_t>(y[v], j);
        store<kStore>(c + tile + i, pack<dtype_t, 16>(sum));
      }
    }
    const int single = rest / VECTOR * VECTOR + threadIdx.x;  // after the last whole vector
    if (single < rest) {
      c[tile + single] =
          from_float<dtype_t>(to_float(a[tile + single]) + to_float(b[tile + single]));
    }
  }
}
