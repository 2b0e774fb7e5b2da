#pragma once
// Turns products of queries and keys into the scores of a softmax. A thread has parts of two rows,
// as accumulators of wgmma and mma.sync have them: register i is in row accumulator_row() +
// register_row(i) and column accumulator_column() + register_column(i) (accumulator.cuh). For the
// operation attention, whose flags it reads.

#include <kernwright/attention/bias.cuh>
#include <kernwright/attention/sequences.cuh>
#include <kernwright/math/bases.cuh>
#include <kernwright/tile/softmax_tile.cuh>

namespace kernwright {

// Scores are logits if more than the scale is between them and q * k.
constexpr bool kLogits =
    config::softcap != config::softcap_none || config::bias == config::bias_alibi || kAdds;

// Turns products into logits.
struct PlainLogits {
  float scale, cap;
  const float* slopes;
  static constexpr TensorOfBias<false> tensor{};

  template <typename... Arguments>
  static __device__ __forceinline__ PlainLogits of(float scale, float cap, const float* slopes,
                                                   Arguments...) {
    return {scale, cap, slopes};
  }

  // Returns the factor that takes a score to base 2.
  __device__ __forceinline__ float unit() const { return kLogits ? kLog2E : fabsf(scale) * kLog2E; }

  __device__ __forceinline__ float slope(int head) const {
    return config::bias == config::bias_alibi ? slopes[head] : 0.0f;
  }

  // Returns the score of a product of a query with the key `distance` before it.
  __device__ __forceinline__ float score(float product, float slope, int distance) const {
    using namespace config;
    float x = product;
    if constexpr (softcap == softcap_tanh) {
      // Fast division returns 0 if e^x is too large for it, which is the limit.
      x = cap * (1 - __fdividef(2, 1 + exp2_fast(2 * kLog2E * (scale / cap) * x)));
    } else if constexpr (kLogits) {
      x *= scale;
    } else if (scale < 0) {
      x = -x;
    }
    if constexpr (bias == bias_alibi) x -= slope * fabsf(static_cast<float>(distance));
    return x;
  }
};

// The same, with the tensor that is added to the logits or hides some of them. Kernels without one
// have the type above, so that ptxas meets the same code as if there were no tensors.
struct BiasedLogits : PlainLogits {
  BiasTensor tensor;

  template <typename... Arguments>
  static __device__ __forceinline__ BiasedLogits of(float scale, float cap, const float* slopes,
                                                    Arguments... of_tensor) {
    return {{scale, cap, slopes}, BiasTensor(of_tensor...)};
  }
};
template <bool Biased>
struct LogitsOf {
  using Type = PlainLogits;
};
template <>
struct LogitsOf<true> {
  using Type = BiasedLogits;
};
using Logits = LogitsOf<config::biased>::Type;

// Turns products into scores. Row 0 is at position `positions[0]` among the keys and row 8 at
// `positions[1]`, column 0 is key `key`, and `head` are the heads of the rows.
template <int Registers>
__device__ __forceinline__ void make_scores(float (&s)[Registers], const Logits& logits,
                                            const int (&positions)[2], const int (&head)[2],
                                            int key) {
  if constexpr (kLogits) {
    const float slope[2] = {logits.slope(head[0]), logits.slope(head[1])};
#pragma unroll
    for (int i = 0; i < Registers; ++i) {
      const int half = register_row(i) / 8;
      const int distance = positions[half] - key - accumulator_column() - register_column(i);
      s[i] = logits.score(s[i], slope[half], distance);
    }
  } else if (logits.scale < 0) {
#pragma unroll
    for (float& x : s) x = -x;
  }
}

// Masks the keys that a row does not see.
template <int Registers>
__device__ __forceinline__ void apply_mask(float (&s)[Registers], const int (&positions)[2],
                                           int keys, int key) {
  using namespace config;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int end = mask == mask_none ? keys : min(keys, positions[half] + 1);
    const int last = end - key - accumulator_column();
    const int first = positions[half] - (window - 1) - key - accumulator_column();
#pragma unroll
    for (int i = 0; i < Registers; ++i) {
      if (register_row(i) != half * 8) continue;
      bool seen = register_column(i) < last;
      if constexpr (mask == mask_window) seen = seen && register_column(i) >= first;
      if (!seen) s[i] = hidden_score();
    }
  }
}

}  // namespace kernwright
