#include <kernwright/config.cuh>
#include <kernwright/math/reduce.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/routing/scores.cuh>

using namespace kernwright;
using namespace kernwright::config;

namespace {

constexpr int kVector = VECTOR_BYTES / sizeof(dtype_t);
constexpr int kOwn = STEPS * kVector;              // experts of a lane
constexpr int kKept = kOwn < top ? kOwn : top;     // of these, the largest that may be chosen
constexpr int kSlots = (top + LANES - 1) / LANES;  // chosen experts of a lane
constexpr bool kDivides = renormalise == renormalise_sum || softmax_at == softmax_at_after;
constexpr bool kIsSoftmax = score == score_softmax && softmax_at == softmax_at_before;
constexpr bool kHasSum = kIsSoftmax && (COMPARES_SCORES || !kDivides);

// An expert and what it is compared by as one number, which is larger for a larger score and, of
// equal ones, for a smaller id. It is 0 for none. Logits of 16 bits and their id fit 32 bits: as
// fp32 the lower 13 bits of their orders are equal.
using Key = Chosen<NARROW, unsigned, unsigned long long>::Type;
constexpr int kDropped = NARROW ? 13 : 0;
constexpr int kIdBits = NARROW ? 10 : 32;
constexpr unsigned kIdMask = NARROW ? 1023 : 0xffffffff;

__device__ __forceinline__ Key key_of(unsigned order, int id) {
  return static_cast<Key>(order >> kDropped) << kIdBits | (~static_cast<unsigned>(id) & kIdMask);
}
__device__ __forceinline__ int id_of(Key key) {
  return static_cast<int>(~static_cast<unsigned>(key) & kIdMask);
}

// The largest key.
struct Most {
  using Value = Key;
  static __device__ __forceinline__ Value identity() { return 0; }
  static __device__ __forceinline__ Value combine(Value a, Value b) { return a > b ? a : b; }
  template <int Width>
    requires(Width == 32)
  static __device__ __forceinline__ Value over_lanes(Value x) {
    const unsigned long long wide = x;
    const auto lower = static_cast<unsigned>(wide), upper = static_cast<unsigned>(wide >> 32);
    if constexpr (NARROW) return __reduce_max_sync(0xffffffffu, lower);
    const unsigned most = __reduce_max_sync(0xffffffffu, upper);
    const unsigned last = __reduce_max_sync(0xffffffffu, upper == most ? lower : 0);
    return static_cast<Key>(static_cast<unsigned long long>(most) << 32 | last);
  }
};

// Sorts keys, the largest first, by Batcher's odd-even merges: neighbours that are sorted in parts
// of Half keys are compared at ever smaller distances.
template <int Half, int Distance, int Count>
__device__ __forceinline__ void sort(Key (&key)[Count]) {
#pragma unroll
  for (int i = Distance % Half; i < Count - Distance; ++i) {
    const bool is_first = (i - Distance % Half) / Distance % 2 == 0;
    if (!is_first || i / (2 * Half) != (i + Distance) / (2 * Half)) continue;
    const Key a = key[i], b = key[i + Distance];
    key[i] = a > b ? a : b;
    key[i + Distance] = a > b ? b : a;
  }
  if constexpr (Distance > 1) {
    sort<Half, Distance / 2>(key);
  } else if constexpr (2 * Half < Count) {
    sort<2 * Half, 2 * Half>(key);
  }
}

struct UnitSum {
  using Value = ExponentialSum;
  static __device__ __forceinline__ Value identity() { return 0; }
  static __device__ __forceinline__ Value combine(Value a, Value b) { return a + b; }
};

// The two largest of numbers.
struct TwoBest {
  struct Value {
    unsigned best, second;
  };
  static __device__ __forceinline__ Value identity() { return {0, 0}; }
  static __device__ __forceinline__ Value combine(const Value& a, const Value& b) {
    return {max(a.best, b.best), max(min(a.best, b.best), max(a.second, b.second))};
  }
};

// The experts of a lane. The groups share the lanes of a token evenly, and the lanes of a group
// take its vectors in turn.
struct Own {
  __device__ __forceinline__ explicit Own(int lane)
      : group(lane / GROUP_LANES), in_group(lane % GROUP_LANES) {}

  __device__ __forceinline__ int vector(int step) const { return step * GROUP_LANES + in_group; }
  __device__ __forceinline__ bool has(int step) const {
    return group < expert_groups && vector(step) < GROUP_VECTORS;
  }
  __device__ __forceinline__ int id(int i) const {
    return group * per_group + vector(i / kVector) * kVector + i % kVector;
  }

  int group, in_group;
};

// Sets the numbers of all experts to 0 whose group is not kept. Groups compare by the value of
// `of_groups`, of equal ones the first is kept.
__device__ __forceinline__ void keep_groups(unsigned (&order)[kOwn], const Own& own) {
  TwoBest::Value two = TwoBest::identity();
#pragma unroll
  for (int i = 0; i < kOwn; ++i) two = TwoBest::combine(two, {order[i], 0});
  two = warp_reduce<TwoBest, GROUP_LANES>(two);
  unsigned of_group = two.best;
  if constexpr (group_score == group_score_two_best) {
    of_group = order_of(__fadd_rn(value_of(two.best), value_of(two.second)));
  }
  int before = 0;
#pragma unroll
  for (int g = 0; g < expert_groups; ++g) {
    const unsigned other = __shfl_sync(0xffffffffu, of_group, g * GROUP_LANES, LANES);
    before += other > of_group || (other == of_group && g < own.group) ? 1 : 0;
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (before >= kept_groups) order[i] = 0;
  }
}

}  // namespace

// Chooses the experts of a token in LANES lanes of a warp. Each lane sorts its own, and in each
// round the largest first one of all lanes is taken. The logits of chosen experts are read again,
// so only their weights are computed.
extern "C" __global__ void __launch_bounds__(THREADS)
    choose_experts_row(KW_PARAMETERS(choose_experts_row)) {
  release_next_kernel();
  const int lane = static_cast<int>(threadIdx.x) % LANES;
  const long long token = (static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x) / LANES;
  const Own own(lane);
  await_previous_kernel();
  bool counts = token < token_count;
  if constexpr (padding == padding_behind) counts = counts && token < real[0];
  const dtype_t* const row = logits + token * experts;

  Packed<VECTOR_BYTES> read[STEPS];
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    if (counts && own.has(step)) {
      read[step] = load<Load::read_only, VECTOR_BYTES>(row + own.id(step * kVector));
    }
  }
  float x[kOwn];
  bool is_there[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    is_there[i] = counts && own.has(i / kVector);
    x[i] = is_there[i] ? ::lane<dtype_t>(read[i / kVector], i % kVector) : minus_infinity();
  }

  float most = 0;
  ExponentialSum sum = 0;
  if constexpr (kHasSum || COMPARES_SCORES) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) x[i] = capped(x[i], cap);
  }
  if constexpr (kHasSum) {
    most = x[0];
#pragma unroll
    for (int i = 1; i < kOwn; ++i) most = larger(most, x[i]);
    most = warp_reduce<Max, LANES>(most);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (is_there[i]) sum += in_units(exp_fast(x[i] - most));
    }
    sum = warp_reduce<UnitSum, LANES>(sum);
  }
  unsigned order[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    float key = x[i];
    if constexpr (COMPARES_SCORES) {
      key = kIsSoftmax ? softmax_score(key, most, sum) : score_alone(key);
      if constexpr (config::bias == bias_choice) {
        if (is_there[i]) key = __fadd_rn(key, to_float(bias[own.id(i)]));
      }
    }
    order[i] = is_there[i] ? order_of(key) : 0;
  }
  if constexpr (kept_groups < expert_groups) keep_groups(order, own);

  Key key[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) key[i] = order[i] == 0 ? 0 : key_of(order[i], own.id(i));
  sort<1, 1>(key);
  int chosen[kSlots];
#pragma unroll
  for (int j = 0; j < top; ++j) {
    const Key best = warp_reduce<Most, LANES>(key[0]);
    if (j % LANES == lane) chosen[j / LANES] = id_of(best);
    const bool is_own = key[0] == best;
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const Key next = i + 1 < kKept ? key[i + 1] : 0;
      key[i] = is_own ? next : key[i];
    }
  }

  float share[kSlots];
#pragma unroll
  for (int slot = 0; slot < kSlots; ++slot) {
    const bool has = slot * LANES + lane < top && counts;
    share[slot] = has ? capped(to_float(row[chosen[slot]]), cap) : minus_infinity();
  }
  if constexpr (score == score_softmax) {
    if constexpr (kDivides) {
      most = share[0];
#pragma unroll
      for (int slot = 1; slot < kSlots; ++slot) most = larger(most, share[slot]);
      most = warp_reduce<Max, LANES>(most);
    }
#pragma unroll
    for (float& one : share) {
      one = kDivides ? exp_fast(one - most) : softmax_score(one, most, sum);
    }
  } else {
#pragma unroll
    for (float& one : share) one = score_alone(one);
  }
  float divisor = 1;
  if constexpr (kDivides) {
    divisor = 0;
#pragma unroll
    for (int j = 0; j < top; ++j) {
      divisor += __shfl_sync(0xffffffffu, share[j / LANES], j % LANES, LANES);
    }
    divisor += 1e-20f;
  }
  if (token >= token_count) return;
#pragma unroll
  for (int slot = 0; slot < kSlots; ++slot) {
    const int j = slot * LANES + lane;
    if (j >= top) continue;
    const float weight = kDivides ? share[slot] / divisor : share[slot];
    ids[token * top + j] = counts ? chosen[slot] : -1;
    weights[token * top + j] = counts && factor != 0 ? factor * weight : 0;
  }
}
