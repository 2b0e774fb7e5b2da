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

}  // namespace kernwright
