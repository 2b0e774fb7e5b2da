#pragma once
// The scales and zero points of packed weights, in shared memory as they are in the tensors, and
// the groups that have them. With config::ONE_GROUP there is one, and config::BEFORE columns of the
// first group are ahead of the weights.

#include <kernwright/math/vector.cuh>
#include <kernwright/quantized/codes.cuh>

namespace kernwright {

// Returns the group, of `groups`, of a column; columns behind the last take the last one's.
__device__ __forceinline__ int group_of(int column, int groups) {
  using namespace config;
  return ONE_GROUP ? 0 : ::min(static_cast<int>((column + BEFORE) / group), groups - 1);
}

// The scales of rows g and g + 8 of a slab, 16 rows of a block, and their zero points as
// decode_small_pairs() takes them off, or decode_pairs() without kSmall.
template <bool kSmall>
struct StagedFactors {
  float scale[2];
  unsigned zero[2];

  StagedFactors() = default;
  // `scales` and `zeros` are the shared addresses of the first group, and `place` is the group's
  // number from there.
  __device__ __forceinline__ StagedFactors(unsigned scales, unsigned zeros, int place, int slab) {
    using config::scale_t;
    const int rows = place * 64 + slab * 16 + static_cast<int>(threadIdx.x) % 32 / 4 * 2;
    constexpr int kBytes = 2 * sizeof(scale_t);
    const auto pair = load_shared<kBytes>(scales + rows * static_cast<int>(sizeof(scale_t)));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (kExponents) {
        scale[half] = scale_value(static_cast<unsigned char>(pair.word[0] >> 8 * half));
      } else {
        scale[half] = lane<scale_t>(pair, half);
      }
    }
    unsigned both = kNoZero | kNoZero << 8;
    if constexpr (kZeros) both = load_shared<2>(zeros + rows).word[0];
    const int lower = static_cast<int>(both & 255), upper = static_cast<int>(both >> 8 & 255);
    if constexpr (kSmall) {
      small_zero_words<config::dtype_t>(zero, lower, upper);
    } else {
      zero[0] = zero_word<config::dtype_t>(lower);
      zero[1] = zero_word<config::dtype_t>(upper);
    }
  }
};

// The scales of rows g and g + 8 of a slab of mxfp4, for each of `Parts` parts of a block's
// columns. As powers of two they are joined to the one by which the bits of codes become numbers.
template <int Parts>
class StagedPowers {
 public:
  StagedPowers() = default;
  // `scales` is the shared address of the first group, and `places` are the numbers of the parts'
  // groups from there.
  __device__ __forceinline__ StagedPowers(unsigned scales, const int (&places)[Parts], int slab) {
    const int row = slab * 16 + static_cast<int>(threadIdx.x) % 32 / 4 * 2;
#pragma unroll
    for (int part = 0; part < Parts; ++part) {
      both_[part] = load_shared<2>(scales + places[part] * 64 + row).word[0];
    }
  }

  // Returns true if some are 2 or more: with the power of codes too large for a bf16, or NaN.
  __device__ __forceinline__ bool are_large() const {
    unsigned any = 0;
#pragma unroll
    for (int part = 0; part < Parts; ++part) any |= both_[part];
    return (any & 0x8080) != 0;
  }

  // Sets `weights` to the codes of four steps times their scales, exactly if these are not large or
  // with kLarge.
  template <bool kLarge>
  __device__ __forceinline__ void decode(unsigned (&weights)[4][4],
                                         const Packed<16> (&vectors)[kVectors]) const {
    using config::dtype_t;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const unsigned bits = small_pair(vectors[0].word[i / 4], i % 4);
      const unsigned x = both_[i / 4 * Parts / 4] >> 8 * (i % 2) & 255;
      unsigned& weight = weights[i / 4][i % 4];
      if constexpr (kLarge) {
        const unsigned power = x == 255 ? 0x7fff7fff : x == 0 ? 0x00400040 : x * kTwice;
        weight = multiply_words<dtype_t>(multiply_words<dtype_t>(bits, kSmallPower), power);
      } else {
        weight = multiply_words<dtype_t>(bits, (x + 126) * kTwice);
      }
    }
  }

 private:
  static constexpr unsigned kTwice = 0x00800080;  // moves an exponent to its place in two bf16

  unsigned both_[Parts];
};

}  // namespace kernwright
