#pragma once
// The new token of a sequence (flag append): its queries and its key are normalised and rotated,
// and its key and value go to the cache and to the tile that has their place.

#include "layout.cuh"
#include "share.cuh"
#include <kernwright/attention/narrow.cuh>
#include <kernwright/attention/sequences.cuh>
#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/tile/softmax_tile.cuh>

namespace {

constexpr bool kAppends = append != append_none;
constexpr bool kNormalises = append == append_norm_rope;
constexpr bool kAcross = pairs == pairs_halves;  // the elements of a pair are half a head apart
constexpr int kHalf = head_dim / 2;
// True if tiles may be loaded before the previous kernel ends. The first key of a window depends on
// a length, which that kernel may write.
constexpr bool kReadsAhead = kAppends && mask != mask_window;

// Keys and values in global memory.
template <bool Changed>
struct CacheElement {
  using Type = const kv_t;
};
template <>
struct CacheElement<true> {
  using Type = kv_t;
};
using cache_t = CacheElement<kAppends>::Type;

// The arguments of a launch about new tokens.
struct NewTokens {
  cache_t *k, *v;
  const dtype_t *q, *k_new, *v_new, *q_norm, *k_norm;
  const float *cosine, *sine;
  int ldk, ldv, ldk_new, ldv_new;
  float eps;

  // Returns the factor of a head whose elements have this sum of squares.
  __device__ __forceinline__ float factor(float squares) const {
    return rsqrtf(squares * (1.0f / head_dim) + eps);
  }
};

// Loads that the compiler does not move: they stay before the wait for the previous kernel, or
// behind it, and never move behind another wait.
__device__ __forceinline__ uint2 load_words(const dtype_t* from) {
  uint2 words;
  asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(words.x), "=r"(words.y) : "l"(from));
  return words;
}
__device__ __forceinline__ float2 load_floats(const float* from) {
  float2 x;
  asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "l"(from));
  return x;
}

// Four neighbours of the first half of a head, and the four that are half a head behind them.
struct Elements {
  float x[8];

  __device__ __forceinline__ Elements(uint2 first, uint2 second) {
    const unsigned words[4] = {first.x, first.y, second.x, second.y};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = unpack_pair<p_t>(words[i]);
      x[2 * i] = pair.x;
      x[2 * i + 1] = pair.y;
    }
  }
  __device__ __forceinline__ float squares() const {
    float sum = 0;
#pragma unroll
    for (const float of : x) sum += of * of;
    return sum;
  }
  __device__ __forceinline__ void normalise(float factor, const Elements& weights) {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = x[i] * factor * weights.x[i];
  }
  __device__ __forceinline__ void rotate(const float (&cosine)[4], const float (&sine)[4]) {
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      float &one = x[kAcross ? pair : 2 * pair], &other = x[kAcross ? pair + 4 : 2 * pair + 1];
      const float before = one;
      one = before * cosine[pair] - other * sine[pair];
      other = other * cosine[pair] + before * sine[pair];
    }
  }
  // Words of the first half, or of the second.
  __device__ __forceinline__ uint2 packed(int half) const {
    const float* const of = x + 4 * half;
    return {pack_pair<p_t>(of[0], of[1]), pack_pair<p_t>(of[2], of[3])};
  }
};

// Prefetches the weights of heads into the L2.
__device__ __forceinline__ void prefetch_weights(const dtype_t* q_norm, const dtype_t* k_norm) {
  constexpr int kOfLine = 128 / sizeof(dtype_t);
  const int element = threadIdx.x / 2 * kOfLine;
  if (element < head_dim) prefetch_line((threadIdx.x % 2 == 0 ? q_norm : k_norm) + element);
}

// The new token of a sequence, computed by the consumers of a block. Its rows are the block's heads
// of q, and then its key. As many lanes share a row as have Elements of it, and all rows are loaded
// at once. The results are in shared memory for the warps that multiply.
class NewToken {
 public:
  // Loads all that depends on the length of the sequence: weights, angles, and the token's place in
  // the cache.
  __device__ __forceinline__ void expect(const NewTokens& tokens, const Sequences& of,
                                         const Share& share) {
    const int position = share.sequence.keys - 1;
    has_place_ = position >= share.begin && position < share.end;
    if (has_place_) {
      key_to_ = const_cast<kv_t*>(tokens.k) +
                key_place(share.sequence, position, share.kv_head, of, tokens.ldk, head_dim);
      value_to_ = const_cast<kv_t*>(tokens.v) +
                  key_place(share.sequence, position, share.kv_head, of, tokens.ldv, head_dim_v);
    }
    if (!is_lane()) return;
    const long long row_of_table = static_cast<long long>(max(0, position)) * kHalf;
    load_angles(cosine_, tokens.cosine + row_of_table);
    load_angles(sine_, tokens.sine + row_of_table);
    if constexpr (kNormalises) {
      const dtype_t* const last = is_key(kRounds - 1) ? tokens.k_norm : tokens.q_norm;
      load_row(last_weights_, last + element());
      if constexpr (kRounds > 1) load_row(weights_, tokens.q_norm + element());
    }
  }

  // Loads the token itself.
  __device__ __forceinline__ void load(const NewTokens& tokens, const Share& share, int ldq) {
    const int number = share.sequence.number, kv_head = share.kv_head;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      if (!is_lane() || !(row(round) < kGroup || (is_key(round) && has_place_))) continue;
      const dtype_t* const from =
          is_key(round)
              ? tokens.k_new + place_of(number, 0, kv_head, 1, kv_heads, tokens.ldk_new, head_dim)
              : tokens.q +
                    place_of(number, 0, head_of(row(round), kv_head), 1, heads, ldq, head_dim);
      load_row(rows_[round], from + element());
    }
    if (has_place_ && has_value()) {
      value_ = load_words(tokens.v_new + threadIdx.x * 4 +
                          place_of(number, 0, kv_head, 1, kv_heads, tokens.ldv_new, head_dim_v));
    }
  }

  // Normalises and rotates queries and key, and appends key and value to the cache. All are visible
  // to put() and the products behind a barrier.
  __device__ __forceinline__ void append(const NewTokens& tokens, Addresses at) const {
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      Elements of(rows_[round][0], rows_[round][1]);
      if constexpr (kNormalises) {
        float squares = of.squares();
#pragma unroll
        for (int distance = kLanes / 2; distance > 0; distance /= 2) {
          squares += __shfl_xor_sync(~0u, squares, distance);
        }
        const auto& weights = round == kRounds - 1 ? last_weights_ : weights_;
        of.normalise(tokens.factor(squares), Elements(weights[0], weights[1]));
      }
      of.rotate(cosine_, sine_);
      if (!is_lane() || row(round) > kGroup) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint2 words = of.packed(half);
        store_shared_pair(at.new_row(row(round)) + (element() + half * kHalf) * 2, words.x,
                          words.y);
        if (is_key(round) && has_place_) {
          *reinterpret_cast<uint2*>(key_to_ + element() + half * kHalf) = words;
        }
      }
    }
    if (has_place_ && has_value()) {
      store_shared_pair(at.new_value() + threadIdx.x * 8, value_.x, value_.y);
      *reinterpret_cast<uint2*>(value_to_ + threadIdx.x * 4) = value_;
    }
  }

  // Replaces the key and value that the ring loaded by the new ones, if `row` is one of the warp's
  // 16 keys of the tile at `keys` and `values`.
  static __device__ __forceinline__ void put(unsigned keys, unsigned values, int row, int first_key,
                                             Addresses at) {
    if (row < first_key || row >= first_key + kKeys) return;
    const int group = threadIdx.x % 32;
    static_assert(head_dim <= 256 && head_dim_v <= 256, "a lane has one group of each");
    if (group < head_dim / 8) {
      store_quad(group_address<kRowD>(keys, row, group),
                 load_quad(at.new_row(kGroup) + group * 16));
    }
    if (group < head_dim_v / 8) {
      store_quad(group_address<kRowDv>(values, row, group), load_quad(at.new_value() + group * 16));
    }
    __syncwarp();
  }

 private:
  static constexpr int kUnits = kHalf < 4 ? 1 : kHalf / 4;
  static constexpr int kLanes = kUnits <= 2    ? 2
                                : kUnits <= 4  ? 4
                                : kUnits <= 8  ? 8
                                : kUnits <= 16 ? 16
                                               : 32;
  static constexpr int kAtOnce = kConsumers / kLanes;  // rows
  static constexpr int kRounds = kGroup / kAtOnce + 1;

  static __device__ __forceinline__ int element() { return threadIdx.x % kLanes * 4; }
  static __device__ __forceinline__ bool is_lane() { return kLanes == kUnits || element() < kHalf; }
  static __device__ __forceinline__ int row(int round) {
    return round * kAtOnce + static_cast<int>(threadIdx.x) / kLanes;
  }
  static __device__ __forceinline__ bool is_key(int round) { return row(round) == kGroup; }
  static __device__ __forceinline__ bool has_value() { return threadIdx.x * 4 < head_dim_v; }

  static __device__ __forceinline__ void load_row(uint2 (&row)[2], const dtype_t* from) {
    row[0] = load_words(from);
    row[1] = load_words(from + kHalf);
  }
  // Loads the angles of the pairs that Elements has.
  static __device__ __forceinline__ void load_angles(float (&angles)[4], const float* table) {
    const float* const first = table + (kAcross ? element() : element() / 2);
    const float2 one = load_floats(first), other = load_floats(first + (kAcross ? 2 : kHalf / 2));
    angles[0] = one.x;
    angles[1] = one.y;
    angles[2] = other.x;
    angles[3] = other.y;
  }

  bool has_place_;  // the token's is among the keys of the block
  kv_t *key_to_, *value_to_;
  uint2 rows_[kRounds][2] = {}, weights_[2], last_weights_[2], value_;
  float cosine_[4] = {}, sine_[4] = {};
};

}  // namespace
