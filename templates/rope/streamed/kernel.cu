#include <kernwright/config.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/rope/rotation.cuh>

using namespace kernwright;
using namespace kernwright::config;

using Vector = Elements<dtype_t, LANES>;

constexpr Store kStore = STREAMING ? Store::streaming : Store::plain;
constexpr int kStep = ADJACENT ? 2 : LANES;     // from a unit's first vector to the next unit's
constexpr int kDistance = ADJACENT ? 1 : HALF;  // from a unit's first vector to its second
using Angles = UnitAngles<LANES, HALF, ACROSS>;

// Returns the first element of a unit of a head, which is in q, k or v.
template <typename T>
__device__ __forceinline__ T* place(T* q, T* k, T* v, long long token, int head, int unit) {
  T* const tensor = head < heads ? q : head < heads + kv_heads ? k : v;
  const int count = head < heads ? heads : kv_heads;
  const int index = head < heads              ? head
                    : head < heads + kv_heads ? head - heads
                                              : head - heads - kv_heads;
  return tensor + (token * count + index) * head_dim + unit * kStep;
}

// Neighbouring threads have the units of one head, and then the units of the next. The heads of a
// thread are GROUPS apart. All its loads are issued before the first is used.
extern "C" __global__ void __launch_bounds__(THREADS) rope_streamed(KW_PARAMETERS(rope_streamed)) {
  release_next_kernel();
  const long long task = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  const long long token = task / (GROUPS * UNITS);
  const int unit = static_cast<int>(task % UNITS);
  const int group = static_cast<int>(task % (GROUPS * UNITS)) / UNITS;
  // If the launch starts early, the first group of a token prefetches its angles into the L2 for
  // all.
  if (blockIdx.x < early && group == 0 && token < tokens) {
    Angles::prefetch(cosine + token * HALF, unit);
    Angles::prefetch(sine + token * HALF, unit);
  }
  await_previous_kernel();
  if (token >= tokens) return;
  Vector first[ITEMS];
  Vector second[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (group + i * GROUPS < ALL_HEADS) {
      const dtype_t* const from = place(q, k, v, token, group + i * GROUPS, unit);
      first[i] = load_elements<Load::read_only, LANES>(from);
      second[i] = load_elements<Load::read_only, LANES>(from + kDistance);
    }
  }
  const Angles cosines(cosine + token * HALF, unit);
  const Angles sines(sine + token * HALF, unit);
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int head = group + i * GROUPS;
    if (head < ALL_HEADS) {
      float rotated_first[LANES];
      float rotated_second[LANES];
      if (head < heads + kv_heads) {
        rotate(rotated_first, rotated_second, first[i], second[i], cosines, sines);
      } else {
#pragma unroll
        for (int j = 0; j < LANES; ++j) {
          rotated_first[j] = first[i][j];
          rotated_second[j] = second[i][j];
        }
      }
      dtype_t* const to = place(q_out, k_out, v_out, token, head, unit);
      store_elements<kStore>(to, rotated_first);
      store_elements<kStore>(to + kDistance, rotated_second);
    }
  }
}
