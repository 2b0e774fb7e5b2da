// A block has a token: its threads load the compressed query and the latent as vectors, and pairs
// of the rotated part, before they reduce. So a token waits for the memory once, and its slot and
// its angles come meanwhile.

#include <kernwright/config.cuh>
#include <kernwright/math/reduce.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/programmatic.cuh>

using namespace kernwright;
using namespace kernwright::config;

using Vector = Elements<dtype_t, LANES>;
using Squares = Each<Sum, 2>;  // of the query and of the latent

constexpr Store kStore = STREAMING ? Store::streaming : Store::plain;

__device__ __forceinline__ void store_normalised(dtype_t* to, const Vector& x, const Vector& weight,
                                                 float factor) {
  float value[LANES];
#pragma unroll
  for (int i = 0; i < LANES; ++i) value[i] = x[i] * factor * weight[i];
  store_elements<kStore>(to, value);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    mla_append_streamed(KW_PARAMETERS(mla_append_streamed)) {
  __shared__ Squares::Value parts[THREADS / 32];
  const int token = blockIdx.x;
  release_next_kernel();
  await_previous_kernel();
  const dtype_t* const row = x + token * ldx;
  Vector vectors[ITEMS], weights[ITEMS];
  Squares::Value squares = Squares::identity();
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int vector = i * THREADS + static_cast<int>(threadIdx.x);
    if (vector >= VECTORS) continue;
    vectors[i] = load_elements<Load::read_only, LANES>(row + vector * LANES);
    weights[i] = load_elements<Load::read_only, LANES>(
        vector < QUERY_VECTORS ? q_norm + vector * LANES
                               : kv_norm + (vector - QUERY_VECTORS) * LANES);
  }
  const int slot = __ldg(slots + token);
  const float* const cosines = cosine + __ldg(positions + token) * static_cast<long long>(HALF);
  const float* const sines = sine + __ldg(positions + token) * static_cast<long long>(HALF);
  dtype_t* const to = cache + slot * static_cast<long long>(ld_cache);
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int vector = i * THREADS + static_cast<int>(threadIdx.x);
    if (vector >= VECTORS) continue;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < LANES; ++j) sum += vectors[i][j] * vectors[i][j];
    if (vector < QUERY_VECTORS) {
      squares.of[0] += sum;
    } else {
      squares.of[1] += sum;
    }
  }
  // Pairs need no sum.
  const dtype_t* const plain = row + query_width + latent;
  dtype_t* const rotated = config::keys == keys_apart
                               ? rope_cache + slot * static_cast<long long>(ld_rope)
                               : to + latent;
  for (int pair = threadIdx.x; slot >= 0 && pair < HALF; pair += THREADS) {
    const int first = pairs == pairs_halves ? pair : 2 * pair;
    const int second = pairs == pairs_halves ? pair + HALF : 2 * pair + 1;
    const float a = to_float(plain[first]), b = to_float(plain[second]);
    const float c = __ldg(cosines + pair), s = __ldg(sines + pair);
    rotated[first] = from_float<dtype_t>(a * c - b * s);
    rotated[second] = from_float<dtype_t>(b * c + a * s);
  }
  squares.of[0] = warp_reduce<Sum, 32>(squares.of[0]);
  squares.of[1] = warp_reduce<Sum, 32>(squares.of[1]);
  squares = combine_warps<Squares, THREADS / 32, 1>(squares, parts);
  const float query_factor = rsqrtf(squares.of[0] * (1.0f / q_rank) + q_eps);
  const float factor = rsqrtf(squares.of[1] * (1.0f / latent) + eps);
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int vector = i * THREADS + static_cast<int>(threadIdx.x);
    if (vector >= VECTORS) continue;
    if (vector < QUERY_VECTORS) {
      store_normalised(q_out + static_cast<long long>(token) * q_rank + vector * LANES, vectors[i],
                       weights[i], query_factor);
    } else if (slot >= 0) {
      store_normalised(to + (vector - QUERY_VECTORS) * LANES, vectors[i], weights[i], factor);
    }
  }
}
