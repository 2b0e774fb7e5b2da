#include <kernwright/config.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/programmatic.cuh>

using namespace kernwright;
using namespace kernwright::config;

constexpr int kLanes = 8;
using Vector = Elements<dtype_t, kLanes>;
constexpr Store kStore = STREAMING ? Store::streaming : Store::plain;

// Returns the first element of a vector of a token's heads, of `Size` elements each, in a tensor of
// `tokens` tokens that are `pitch` elements apart.
template <int Size>
__device__ __forceinline__ long long element(int vector, long long token, long long tokens,
                                             long long pitch) {
  if constexpr (layout == layout_bshd) return token * pitch + vector * kLanes;
  constexpr int kVectors = Size / kLanes;
  return (vector / kVectors * tokens + token) * pitch + vector % kVectors * kLanes;
}

// Divides by the scale of a cache of 8 bits.
__device__ __forceinline__ void write(kv_t* to, const Vector& x, float cache_scale) {
  if constexpr (kv == kv_fp8_e4m3) {
    const float factor = 1 / cache_scale;
    float value[kLanes];
#pragma unroll
    for (int i = 0; i < kLanes; ++i) value[i] = x[i] * factor;
    store_elements<kStore>(to, value);
  } else {
    store<kStore>(to, x.part[0]);
  }
}

// Neighbouring threads have neighbouring vectors of a token, of k and then of v, and then of the
// next token. A thread's vectors are GROUPS apart. All its loads are issued before it looks at the
// token's place.
extern "C" __global__ void __launch_bounds__(THREADS)
    kv_append_placed(KW_PARAMETERS(kv_append_placed)) {
  release_next_kernel();
  const long long task = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  const long long token = task / GROUPS;
  const int group = static_cast<int>(task % GROUPS);
  await_previous_kernel();
  if (token >= q_len) return;

  const long long place = __ldg(places + token);
  Vector x[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int vector = group + i * GROUPS;
    if (vector < KEY_VECTORS) {
      x[i] =
          load_elements<Load::read_only, kLanes>(k + element<head_dim>(vector, token, q_len, ldk));
    } else if (vector < VECTORS) {
      x[i] = load_elements<Load::read_only, kLanes>(
          v + element<head_dim_v>(vector - KEY_VECTORS, token, q_len, ldv));
    }
  }
  if (place < 0) return;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int vector = group + i * GROUPS;
    if (vector < KEY_VECTORS) {
      write(k_cache + element<head_dim>(vector, place, kv_len, ldk_cache), x[i], k_scale);
    } else if (vector < VECTORS) {
      write(v_cache + element<head_dim_v>(vector - KEY_VECTORS, place, kv_len, ldv_cache), x[i],
            v_scale);
    }
  }
}
