#pragma once
// The new token of a sequence: its queries and its key are normalised and rotated in registers, and
// its key and value go to the cache and to the tile that has their place (flag append).

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
constexpr bool kAcross = pairs == pairs_halves;  // the elements of a pair lie half a head apart
constexpr int kHalf = head_dim / 2;
// Whether tiles may be loaded ahead of the kernel before this one. Where a window begins depends on
// a length.
constexpr bool kReadsAhead = kAppends && mask != mask_window;

// Keys and values as they lie in global memory.
template <bool Changed>
struct CacheElement {
  using Type = const kv_t;
};
template <>
struct CacheElement<true> {
  using Type = kv_t;
};
using cache_t = CacheElement<kAppends>::Type;

// What a launch is given of new tokens.
struct NewTokens {
  cache_t *k, *v;
  const dtype_t *k_new, *v_new, *q_norm, *k_norm;
  const float *cosine, *sine;
  int ldk, ldv, ldk_new, ldv_new;
  float eps;

  // The factor of a head whose elements have this sum of squares.
  __device__ __forceinline__ float factor(float squares) const {
    return rsqrtf(squares * (1.0f / head_dim) + eps);
  }
};

// Loads that stay where they are written: behind the wait for the kernel before this one, and not
// behind what else is waited for.
__device__ __forceinline__ unsigned load_word(const dtype_t* from) {
  unsigned word;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(word) : "l"(from));
  return word;
}
__device__ __forceinline__ uint2 load_words(const dtype_t* from) {
  uint2 words;
  asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(words.x), "=r"(words.y) : "l"(from));
  return words;
}

// Two neighbours of a head, which may be one pair, or one of two pairs each.
struct Neighbours {
  float2 x;

  __device__ __forceinline__ Neighbours(float2 x) : x(x) {}
  __device__ __forceinline__ float squares() const { return x.x * x.x + x.y * x.y; }
  __device__ __forceinline__ void normalise(float factor, unsigned weights) {
    const float2 weight = unpack_pair<weight_t>(weights);
    x = {x.x * factor * weight.x, x.y * factor * weight.y};
  }
  __device__ __forceinline__ void turn(float cosine, float sine) {
    x = {x.x * cosine - x.y * sine, x.y * cosine + x.x * sine};
  }
  __device__ __forceinline__ unsigned packed() const { return pack_pair<weight_t>(x.x, x.y); }
};

// The cosines or sines of two such, `first` in the first and `second` in the second half of a head.
struct Angles {
  float2 of;

  // `element` is that of the first.
  __device__ __forceinline__ void load_from(const float* table, int element) {
    if constexpr (kAcross) {
      of = __ldg(reinterpret_cast<const float2*>(table + element));
    } else {
      of = {__ldg(table + element / 2), __ldg(table + kHalf / 2 + element / 2)};
    }
  }
};

__device__ __forceinline__ void rotate(Neighbours& first, Neighbours& second, const Angles& cosine,
                                       const Angles& sine) {
  if constexpr (kAcross) {
    const float2 x = first.x, y = second.x;
    first.x = {x.x * cosine.of.x - y.x * sine.of.x, x.y * cosine.of.y - y.y * sine.of.y};
    second.x = {y.x * cosine.of.x + x.x * sine.of.x, y.y * cosine.of.y + x.y * sine.of.y};
  } else {
    first.turn(cosine.of.x, sine.of.x);
    second.turn(cosine.of.y, sine.of.y);
  }
}

// The weights and angles of a lane's elements of queries, which lie as operand a of mma.sync: a
// lane has two neighbours of every 8 elements of a row, and those half a head behind them. Four
// lanes share a row.
class QueryTables {
 public:
  __device__ __forceinline__ void load(const NewTokens& tokens, int position) {
    const int lane_element = threadIdx.x % 4 * 2;
    const long long row_of_table = static_cast<long long>(position) * kHalf;
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      const int element = unit * 8 + lane_element;
      cosines_[unit].load_from(tokens.cosine + row_of_table, element);
      sines_[unit].load_from(tokens.sine + row_of_table, element);
      if constexpr (kNormalises) {
        weights_[unit] = load_word(tokens.q_norm + element);
        weights_[unit + kUnits] = load_word(tokens.q_norm + element + kHalf);
      }
    }
  }

  // Normalises and rotates queries.
  __device__ __forceinline__ void renew(unsigned (&a)[M_TILES][kStepsD][4],
                                        const NewTokens& tokens) const {
    static_assert(!kAppends || head_dim % 16 == 0);
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (m * 16 + half * 8 >= kGroup) continue;
        const auto word = [&](int unit) -> unsigned& {
          return a[m][unit / 2][unit % 2 * 2 + half];
        };
        float factor = 1;
        if constexpr (kNormalises) {
          float squares = 0;
#pragma unroll
          for (int unit = 0; unit < 2 * kUnits; ++unit) {
            squares += Neighbours(unpack_pair<weight_t>(word(unit))).squares();
          }
          factor = tokens.factor(row_sum(squares));
        }
#pragma unroll
        for (int unit = 0; unit < kUnits; ++unit) {
          unsigned &one = word(unit), &other = word(unit + kUnits);
          Neighbours first(unpack_pair<weight_t>(one)), second(unpack_pair<weight_t>(other));
          if constexpr (kNormalises) {
            first.normalise(factor, weights_[unit]);
            second.normalise(factor, weights_[unit + kUnits]);
          }
          rotate(first, second, cosines_[unit], sines_[unit]);
          one = first.packed();
          other = second.packed();
        }
      }
    }
  }

 private:
  static constexpr int kUnits = kHalf < 8 ? 1 : kHalf / 8;

  unsigned weights_[2 * kUnits];
  Angles cosines_[kUnits], sines_[kUnits];
};

// Brings the weights of heads to the L2.
__device__ __forceinline__ void prefetch_weights(const dtype_t* q_norm, const dtype_t* k_norm) {
  constexpr int kOfLine = 128 / sizeof(dtype_t);
  const int element = threadIdx.x / 2 * kOfLine;
  if (element < head_dim) prefetch_line((threadIdx.x % 2 == 0 ? q_norm : k_norm) + element);
}

// The new token of a warp's sequence: what its queries are renewed by, and its key and its value,
// which one warp of a head has between its lanes.
class NewToken {
 public:
  // Loads what the length of the sequence says: weights and angles. The warp has the token's place
  // among the keys of `share` or not.
  __device__ __forceinline__ void expect(const NewTokens& tokens, const Share& share, int warp) {
    const int position = share.sequence.keys - 1;
    queries_.load(tokens, max(0, position));
    has_ = position >= share.begin && position < share.end &&
           (position - share.begin) % kTile / kKeys == warp;
    if (!has_) return;
    const long long row_of_table = static_cast<long long>(position) * kHalf;
    each_key_unit([&](int i, int element) {
      if constexpr (kNormalises) {
        weights_[i][0] = load_word(tokens.k_norm + element);
        weights_[i][1] = load_word(tokens.k_norm + element + kHalf);
      }
      cosines_[i].load_from(tokens.cosine + row_of_table, element);
      sines_[i].load_from(tokens.sine + row_of_table, element);
    });
  }

  // Loads the token's key and value where the warp has its place.
  __device__ __forceinline__ void load(const NewTokens& tokens, const Share& share) {
    if (!has_) return;
    const int sequence = share.sequence.number, kv_head = share.kv_head;
    const dtype_t* const key =
        tokens.k_new + place_of(sequence, 0, kv_head, 1, kv_heads, tokens.ldk_new, head_dim);
    const dtype_t* const value =
        tokens.v_new + place_of(sequence, 0, kv_head, 1, kv_heads, tokens.ldv_new, head_dim_v);
    each_key_unit([&](int i, int element) {
      key_[i][0] = load_word(key + element);
      key_[i][1] = load_word(key + element + kHalf);
    });
    each_value_unit([&](int i, int element) { value_[i] = load_words(value + element); });
  }

  __device__ __forceinline__ void renew(unsigned (&queries)[M_TILES][kStepsD][4],
                                        const NewTokens& tokens) const {
    queries_.renew(queries, tokens);
  }

  // Makes the key, and writes both to the cache and where put() finds them.
  __device__ __forceinline__ void append(const NewTokens& tokens, const Sequences& of,
                                         const Share& share, Addresses at) const {
    if (!has_) return;
    const int position = share.sequence.keys - 1;
    kv_t* const key = const_cast<kv_t*>(
        tokens.k + key_place(share.sequence, position, share.kv_head, of, tokens.ldk, head_dim));
    kv_t* const value = const_cast<kv_t*>(
        tokens.v + key_place(share.sequence, position, share.kv_head, of, tokens.ldv, head_dim_v));
    float factor = 1;
    if constexpr (kNormalises) {
      float squares = 0;
      each_key_unit([&](int i, int) {
        squares += Neighbours(unpack_pair<weight_t>(key_[i][0])).squares() +
                   Neighbours(unpack_pair<weight_t>(key_[i][1])).squares();
      });
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2) {
        squares += __shfl_xor_sync(~0u, squares, distance);
      }
      factor = tokens.factor(squares);
    }
    each_key_unit([&](int i, int element) {
      Neighbours first(unpack_pair<weight_t>(key_[i][0])),
          second(unpack_pair<weight_t>(key_[i][1]));
      if constexpr (kNormalises) {
        first.normalise(factor, weights_[i][0]);
        second.normalise(factor, weights_[i][1]);
      }
      rotate(first, second, cosines_[i], sines_[i]);
      const unsigned words[2] = {first.packed(), second.packed()};
      store_shared_pair(at.new_key(element), words[0], words[1]);
      *reinterpret_cast<unsigned*>(key + element) = words[0];
      *reinterpret_cast<unsigned*>(key + element + kHalf) = words[1];
    });
    each_value_unit([&](int i, int element) {
      store_shared_pair(at.new_value(element), value_[i].x, value_[i].y);
      *reinterpret_cast<uint2*>(value + element) = value_[i];
    });
  }

  // Puts both in place of what the ring loaded, if `row` is one of the warp's 16 keys of the tile
  // at `keys` and `values`, by the warp that has appended them: a lane reads what it has written.
  static __device__ __forceinline__ void put(unsigned keys, unsigned values, int row, int first_key,
                                             Addresses at) {
    if (row < first_key || row >= first_key + kKeys) return;
    each_key_unit([&](int, int element) {
      const float2 words = load_shared_pair<float>(at.new_key(element));
      store_number(place<kRowD>(keys, row, element), __float_as_int(words.x));
      store_number(place<kRowD>(keys, row, element + kHalf), __float_as_int(words.y));
    });
    each_value_unit([&](int, int element) {
      const float2 words = load_shared_pair<float>(at.new_value(element));
      store_shared_pair(place<kRowDv>(values, row, element), __float_as_uint(words.x),
                        __float_as_uint(words.y));
    });
    __syncwarp();
  }

 private:
  static constexpr int kKeyUnits = (kHalf / 2 + 31) / 32;  // of two neighbours in each half
  static constexpr int kValueUnits = (head_dim_v / 4 + 31) / 32;

  template <typename Body>
  static __device__ __forceinline__ void each_key_unit(const Body& body) {
#pragma unroll
    for (int i = 0; i < kKeyUnits; ++i) {
      const int element = (threadIdx.x % 32 + 32 * i) * 2;
      if (kHalf % 64 == 0 || element < kHalf) body(i, element);
    }
  }
  template <typename Body>
  static __device__ __forceinline__ void each_value_unit(const Body& body) {
#pragma unroll
    for (int i = 0; i < kValueUnits; ++i) {
      const int element = (threadIdx.x % 32 + 32 * i) * 4;
      if (head_dim_v % 128 == 0 || element < head_dim_v) body(i, element);
    }
  }
  template <int RowBytes>
  static __device__ __forceinline__ unsigned place(unsigned tile, int row, int element) {
    return group_address<RowBytes>(tile, row, element / 8) + element % 8 * 2;
  }

  bool has_;
  QueryTables queries_;
  unsigned key_[kKeyUnits][2], weights_[kKeyUnits][2];
  Angles cosines_[kKeyUnits], sines_[kKeyUnits];
  uint2 value_[kValueUnits];
};

}  // namespace
