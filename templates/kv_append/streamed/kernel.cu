#include <kernwright/config.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/rope/rotation.cuh>

using namespace kernwright;
using namespace kernwright::config;

using Vector = Elements<dtype_t, LANES>;
using Angles = UnitAngles<LANES, HALF, pairs == pairs_halves>;

constexpr Store kStore = STREAMING ? Store::streaming : Store::plain;
constexpr bool kRagged = lengths == lengths_ragged;
constexpr bool kFp8 = kv == kv_fp8_e4m3;
constexpr bool kNormalises = kernwright::config::norm == norm_rms;  // CUDA has a norm of its own
constexpr int kQueryHeads = KEY_HEADS - static_cast<int>(kv_heads);

// Returns whether a head of q or k is one of q: these come first.
__device__ __forceinline__ bool is_query(int head) { return kQueryHeads > 0 && head < kQueryHeads; }

// A token's place in a tensor with `tokens` tokens in each entry, `pitch` elements apart.
struct Place {
  int entry, token, tokens;

  // Returns the first element of a head, of `all_heads` with `size` elements.
  __device__ __forceinline__ long long head(int number, int all_heads, int size,
                                            long long pitch) const {
    if constexpr (layout == layout_bshd) {
      return (static_cast<long long>(entry) * tokens + token) * pitch + number * size;
    } else {
      return ((static_cast<long long>(entry) * all_heads + number) * tokens + token) * pitch;
    }
  }
};

// The sequences of a launch. Arrays that the flags do not ask for are null.
struct Sequences {
  const int* __restrict__ q_offsets;
  const int* __restrict__ kv_offsets;
  const int* __restrict__ kv_lengths;
  const int* __restrict__ page_table;
  int count, q_len, kv_len, cache_tokens, table_columns;

  // Returns the sequence with the new token `place`: the last one that begins there or before it,
  // since a sequence that begins where the next one does has no tokens.
  __device__ __forceinline__ int sequence_of(int place) const {
    if constexpr (!kRagged) return static_cast<unsigned>(place) / static_cast<unsigned>(q_len);
    int low = 0;
    int high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (__ldg(q_offsets + middle) <= place) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }
  // Returns a token's position: negative if the sequence has fewer keys than new tokens.
  __device__ __forceinline__ int position_of(int place, int sequence) const {
    const int end = kRagged ? __ldg(q_offsets + sequence + 1) : (sequence + 1) * q_len;
    int keys = kv_len;
    if constexpr (lengths == lengths_kv || (kRagged && cache == cache_paged)) {
      keys = __ldg(kv_lengths + sequence);
    } else if constexpr (kRagged) {
      keys = __ldg(kv_offsets + sequence + 1) - __ldg(kv_offsets + sequence);
    }
    return keys - (end - place);
  }
  __device__ __forceinline__ Place in_cache(int sequence, int position) const {
    if constexpr (cache == cache_paged) {
      constexpr int kPage = page;
      const long long entry = static_cast<long long>(sequence) * table_columns + position / kPage;
      return {__ldg(page_table + entry), position % kPage, kPage};
    } else if constexpr (kRagged) {
      return {0, __ldg(kv_offsets + sequence) + position, cache_tokens};
    } else {
      return {sequence, position, cache_tokens};
    }
  }
};

// Multiplies by the inverse of the scale of a cache of 8 bits.
__device__ __forceinline__ void scale(float (&value)[LANES], float factor) {
  if constexpr (kFp8) {
#pragma unroll
    for (float& x : value) x *= factor;
  }
}

__device__ __forceinline__ void copy(kv_t* to, const Vector& from, float factor) {
  if constexpr (kFp8) {
    float value[LANES];
#pragma unroll
    for (int i = 0; i < LANES; ++i) value[i] = from[i];
    scale(value, factor);
    store_elements<kStore>(to, value);
  } else {
    store<kStore>(to, from.part[0]);
  }
}

// A unit of the weights by which a normalised head is multiplied.
struct Weights {
  Vector first, second;

  __device__ __forceinline__ void load_from(const dtype_t* unit) {
    first = load_elements<Load::read_only, LANES>(unit);
    second = load_elements<Load::read_only, LANES>(unit + HALF);
  }
};

__device__ __forceinline__ float squares(const Vector& x) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < LANES; ++i) sum += x[i] * x[i];
  return sum;
}

// Adds a thread's sums of its parts of several heads to sums of whole heads, in all threads of a
// head: KEY_LANES neighbours of one warp.
__device__ __forceinline__ void add_lanes(float (&sum)[ITEMS]) {
  constexpr unsigned kAll = KEY_LANES == 32 ? ~0u : (1u << KEY_LANES % 32) - 1;
  const unsigned lanes = kAll << threadIdx.x % 32 / KEY_LANES * KEY_LANES;
#pragma unroll
  for (int distance = KEY_LANES / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (float& x : sum) x += __shfl_xor_sync(lanes, x, distance);
  }
}

__device__ __forceinline__ void normalise(float (&value)[LANES], const Vector& x,
                                          const Vector& weight, float factor) {
#pragma unroll
  for (int i = 0; i < LANES; ++i) value[i] = x[i] * factor * weight[i];
}

// Neighbouring threads have the units of a head, then the units of the next; v's units come after
// the units of q and k. A unit is two vectors half a head apart. The heads of a thread are as many
// apart as there are groups of them. All its loads from q, k or v are issued before it looks for
// the token's place. If heads are normalised, a head of q or k and a token each begin with a
// multiple of KEY_LANES threads, so that some threads have no unit.
extern "C" __global__ void __launch_bounds__(THREADS)
    kv_append_streamed(KW_PARAMETERS(kv_append_streamed)) {
  release_next_kernel();
  const long long task = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  const long long token_number = task / TASKS;
  const int own = static_cast<int>(task % TASKS);
  const bool is_value = own >= KEY_GROUPS * KEY_LANES;
  const int rest = own - KEY_GROUPS * KEY_LANES;
  const int unit = is_value ? rest % VALUE_UNITS : own % KEY_LANES;
  const int group = is_value ? rest / VALUE_UNITS : own / KEY_LANES;
  const int groups = is_value ? VALUE_GROUPS : KEY_GROUPS;
  const bool has_unit = !kNormalises || (is_value ? group < VALUE_GROUPS : unit < KEY_UNITS);
  const int all_heads = !has_unit ? 0 : is_value ? static_cast<int>(kv_heads) : KEY_HEADS;
  const int distance = is_value ? HALF_V : HALF;
  await_previous_kernel();
  if (token_number >= q_total) return;
  const int token = static_cast<int>(token_number);

  const Sequences sequences{q_offsets, kv_offsets, kv_lengths, page_table,   batch,
                            q_len,     kv_len,     kv_tokens,  table_columns};
  Place from{0, token, q_total};
  if constexpr (!kRagged) {
    from.entry = sequences.sequence_of(token);
    from = {from.entry, token - from.entry * q_len, q_len};
  }
  Vector first[ITEMS];
  Vector second[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int head = group + i * groups;
    if (head >= all_heads) continue;
    const dtype_t* x = nullptr;
    if (is_value) {
      x = v + from.head(head, kv_heads, head_dim_v, ldv);
    } else if (is_query(head)) {
      x = q + from.head(head, heads, head_dim, ldq);
    } else {
      x = k + from.head(head - kQueryHeads, kv_heads, head_dim, ldk);
    }
    first[i] = load_elements<Load::read_only, LANES>(x + unit * LANES);
    second[i] = load_elements<Load::read_only, LANES>(x + unit * LANES + distance);
  }
  Weights q_weights;
  Weights k_weights;
  if (kNormalises && has_unit && !is_value) {
    if constexpr (kQueryHeads > 0) q_weights.load_from(q_norm + unit * LANES);
    k_weights.load_from(k_norm + unit * LANES);
  }

  const int sequence = kRagged ? sequences.sequence_of(token) : from.entry;
  const int position = sequences.position_of(token, sequence);
  Place to{};
  if (position >= 0) to = sequences.in_cache(sequence, position);
  const float factor = kFp8 ? 1 / (is_value ? v_scale : k_scale) : 1.0f;
  if (rope == rope_none || is_value) {
    if (position < 0) return;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const int head = group + i * groups;
      if (head >= all_heads) continue;
      kv_t* const place = is_value ? v_cache + to.head(head, kv_heads, head_dim_v, ldv_cache)
                                   : k_cache + to.head(head, kv_heads, head_dim, ldk_cache);
      copy(place + unit * LANES, first[i], factor);
      copy(place + unit * LANES + distance, second[i], factor);
    }
    return;
  }
  if constexpr (rope != rope_none) {
    float factors[ITEMS];
    if constexpr (kNormalises) {
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) {
        const bool has_head = group + i * groups < all_heads;
        factors[i] = has_head ? squares(first[i]) + squares(second[i]) : 0;
      }
      add_lanes(factors);
#pragma unroll
      for (float& x : factors) x = rsqrtf(x * (1.0f / head_dim) + eps);
      if (!has_unit) return;
    }
    // Queries of a token without a position are rotated too: every element of q_out is written.
    const long long angles = static_cast<long long>(::max(position, 0)) * HALF;
    const Angles cosines(cosine + angles, unit);
    const Angles sines(sine + angles, unit);
    constexpr long long kQueryPitch = layout == layout_bshd ? heads * head_dim : head_dim;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const int head = group + i * groups;
      if (head >= all_heads) continue;
      float x[LANES];
      float y[LANES];
      if constexpr (kNormalises) {
        const Weights weights = is_query(head) ? q_weights : k_weights;
        float unrotated[2][LANES];
        normalise(unrotated[0], first[i], weights.first, factors[i]);
        normalise(unrotated[1], second[i], weights.second, factors[i]);
        rotate(x, y, unrotated[0], unrotated[1], cosines, sines);
      } else {
        rotate(x, y, first[i], second[i], cosines, sines);
      }
      if (is_query(head)) {
        dtype_t* const place = q_out + from.head(head, heads, head_dim, kQueryPitch) + unit * LANES;
        store_elements<kStore>(place, x);
        store_elements<kStore>(place + HALF, y);
      } else if (position >= 0) {
        kv_t* const place =
            k_cache + unit * LANES + to.head(head - kQueryHeads, kv_heads, head_dim, ldk_cache);
        scale(x, factor);
        scale(y, factor);
        store_elements<kStore>(place, x);
        store_elements<kStore>(place + HALF, y);
      }
    }
  }
}
