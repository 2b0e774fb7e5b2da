#include <kernwright/config.cuh>
#include <kernwright/math/formula.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/programmatic.cuh>

using namespace kernwright;
using namespace kernwright::config;

constexpr Store kStore = STREAMING ? Store::streaming : Store::plain;

// A thread's vectors of one input; empty if the formula does not use it.
template <bool Used, typename T>
struct Input {
  Elements<T, LANES> vectors[ITEMS];

  __device__ __forceinline__ void load(int i, const T* from) {
    vectors[i] = load_elements<Load::read_only, LANES>(from);
  }
  __device__ __forceinline__ float operator()(int i, int j) const { return vectors[i][j]; }
  static __device__ __forceinline__ float single(const T* from) { return to_float(*from); }
};

template <typename T>
struct Input<false, T> {
  __device__ __forceinline__ void load(int, const T*) {}
  __device__ __forceinline__ float operator()(int, int) const { return 0; }
  static __device__ __forceinline__ float single(const T*) { return 0; }
};

// Computes one tile in a block; only `rest` elements of it exist. All loads are issued before the
// first is used, because the bytes in flight decide the rate, not the occupancy.
extern "C" __global__ void __launch_bounds__(THREADS)
    elementwise_vectorized(KW_PARAMETERS(elementwise_vectorized)) {
  release_next_kernel();
  const long long tile = static_cast<long long>(blockIdx.x) * TILE;
  const int rest = static_cast<int>(::min(n - tile, static_cast<long long>(TILE)));
  await_previous_kernel();
  Input<formula_x, dtype_t> xs;
  Input<formula_y, y_dtype_t> ys;
  Input<formula_z, z_dtype_t> zs;
  Input<formula_w, w_dtype_t> ws;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int at = (i * THREADS + threadIdx.x) * LANES;
    if (at + LANES <= rest) {
      xs.load(i, x + tile + at);
      ys.load(i, y + tile + at);
      zs.load(i, z + tile + at);
      ws.load(i, w + tile + at);
    }
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int at = (i * THREADS + threadIdx.x) * LANES;
    if (at + LANES <= rest) {
      float value[LANES];
#pragma unroll
      for (int j = 0; j < LANES; ++j) {
        value[j] = formula<FormulaMath>(xs(i, j), ys(i, j), zs(i, j), ws(i, j), a, b);
      }
      store_elements<kStore>(r + tile + at, value);
    }
  }
  const int single = rest / LANES * LANES + threadIdx.x;  // after the last whole vector
  if (single < rest) {
    const long long at = tile + single;
    r[at] = from_float<out_t>(formula<FormulaMath>(xs.single(x + at), ys.single(y + at),
                                                   zs.single(z + at), ws.single(w + at), a, b));
  }
}
