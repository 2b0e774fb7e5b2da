#pragma once
// A bias that is a tensor: numbers that are added to the scores, or which keys a query sees. For
// the operation attention, whose flags it reads.

#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/tile/accumulator.cuh>
#include <kernwright/tile/softmax_tile.cuh>

namespace kernwright {

constexpr bool kHides = config::bias == config::bias_boolean;
constexpr bool kAdds = config::bias == config::bias_additive;
// Whether rows that meet the same keys may see others of them.
constexpr bool kRowsDiffer = config::mask != config::mask_none || kHides;

template <bool IsBoolean, typename T>
struct ElementOfBias {
  using Type = T;
};
template <typename T>
struct ElementOfBias<true, T> {
  using Type = unsigned char;
};

// The tensor of a launch. Its rows have `keys` elements. Pitches are 0 where all share an entry.
template <bool Exists>
struct TensorOfBias {
  using Element = ElementOfBias<kHides, config::bias_dtype_t>::Type;

  const Element* elements;
  int keys;
  long long sequence_pitch, head_pitch, query_pitch;

  __device__ __forceinline__ TensorOfBias(const bool* seen, const config::bias_dtype_t* added,
                                          int keys, long long sequence_pitch, long long head_pitch,
                                          long long query_pitch)
      : elements(static_cast<const Element*>(kHides ? static_cast<const void*>(seen) : added)),
        keys(keys),
        sequence_pitch(sequence_pitch),
        head_pitch(head_pitch),
        query_pitch(query_pitch) {}

  // Returns the place of key 0 for a query.
  __device__ __forceinline__ const Element* row(int sequence, int head, int query) const {
    return elements + sequence * sequence_pitch + head * head_pitch + query * query_pitch;
  }
  // Returns whether all rows begin at multiples of `bytes`.
  __device__ __forceinline__ bool is_aligned(int bytes) const {
    const long long pitches = (sequence_pitch | head_pitch | query_pitch) * sizeof(Element);
    return ((reinterpret_cast<long long>(elements) | pitches) & (bytes - 1)) == 0;
  }
};
// Stands in for it in kernels without one, which do not use it.
template <>
struct TensorOfBias<false> {
  using Element = config::bias_dtype_t;
  static constexpr int keys = 0;

  __device__ __forceinline__ const Element* row(int, int, int) const { return nullptr; }
  __device__ __forceinline__ bool is_aligned(int) const { return true; }
};
using BiasTensor = TensorOfBias<config::biased>;

// Applies the bias of two neighbouring keys to their scores. A word has two elements of 8 or 16
// bits.
template <typename Element>
__device__ __forceinline__ void apply_pair(float& first, float& second, unsigned word) {
  if constexpr (sizeof(Element) == 1) {
    if ((word & 0xff) == 0) first = hidden_score();
    if ((word & 0xff00) == 0) second = hidden_score();
  } else {
    const float2 pair = unpack_pair<Element>(word);
    first += pair.x;
    second += pair.y;
  }
}

// The bias of a thread's scores of a tile, whose rows have the keys from a multiple of 16 on. It is
// loaded before the scores are known, so that their products hide the latency.
template <int Registers, typename Element = BiasTensor::Element>
class BiasOfScores {
 public:
  // Loads it for rows 0 and 8, of which `rows` are the places of key 0. Reads nothing behind a row.
  __device__ __forceinline__ void load(const BiasTensor& bias, const Element* const (&rows)[2],
                                       int key) {
    constexpr int kKeys = 2 * Registers;  // of the tile
    const bool whole = bias.is_aligned(2 * sizeof(Element)) && key + kKeys <= bias.keys;
#pragma unroll
    for (int i = 0; i < Registers; i += 2) {
      const int column = key + accumulator_column() + register_column(i);
      const Element* const from = rows[register_row(i) / 8] + column;
      if constexpr (sizeof(Element) == 4) {
        float2 pair = {0, 0};
        if (whole) {
          pair = *reinterpret_cast<const float2*>(from);
        } else {
          if (column < bias.keys) pair.x = from[0];
          if (column + 1 < bias.keys) pair.y = from[1];
        }
        words_[i] = __float_as_uint(pair.x);
        words_[i + 1] = __float_as_uint(pair.y);
      } else {
        unsigned word = 0;
        if (whole) {
          word = sizeof(Element) == 1 ? *reinterpret_cast<const unsigned short*>(from)
                                      : *reinterpret_cast<const unsigned*>(from);
        } else {
          if (column < bias.keys) word = bits_of(from[0]);
          if (column + 1 < bias.keys) word |= bits_of(from[1]) << 8 * sizeof(Element);
        }
        words_[i / 2] = word;
      }
    }
  }

  __device__ __forceinline__ void apply(float (&s)[Registers]) const {
#pragma unroll
    for (int i = 0; i < Registers; i += 2) {
      if constexpr (sizeof(Element) == 4) {
        s[i] += __uint_as_float(words_[i]);
        s[i + 1] += __uint_as_float(words_[i + 1]);
      } else {
        apply_pair<Element>(s[i], s[i + 1], words_[i / 2]);
      }
    }
  }

 private:
  static __device__ __forceinline__ unsigned bits_of(unsigned char x) { return x; }
  template <typename T>
  static __device__ __forceinline__ unsigned bits_of(T x) {
    return x.bits;
  }

  unsigned words_[sizeof(Element) == 4 ? Registers : Registers / 2];
};

}  // namespace kernwright
