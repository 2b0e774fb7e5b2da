#pragma once
// The epilogue of a product of experts, on sums in fp32: activation(sum + bias[column]), or with a
// gate activation(gate + its bias) * (up + its bias), each part only if the problem's flags ask for
// it. swiglu_oai is the gated form of gpt-oss: min(g, limit) sigmoid(gate_alpha min(g, limit))
// (clamp(u, -limit, limit) + 1).

#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/matmul/activate.cuh>

namespace kernwright {

constexpr bool kGated = config::gate != config::gate_none;

class ExpertEpilogue {
 public:
  using Element = config::out_t;

  // `bias` has an element for each row of one expert's weights. Column c of d is made of row c *
  // `stride` and, with a gate, of the row that is `to_other` behind it. `bias` may be null if the
  // problem has none.
  __device__ ExpertEpilogue(const Element* bias, float limit, float gate_alpha, int to_other,
                            int stride = 1)
      : bias_(bias), limit_(limit), gate_alpha_(gate_alpha), to_other_(to_other), stride_(stride) {}

  // The numbers that an element needs besides its sums, as they are in memory. They may be loaded
  // before the sums are known.
  struct Addends {
    Element bias, other_bias;
  };
  __device__ __forceinline__ Addends addends(int column) const {
    Addends addends{};
    if constexpr (kBias) {
      const Element* const at = bias_ + column * stride_;
      addends.bias = *at;
      if constexpr (kGated) addends.other_bias = at[to_other_];
    }
    return addends;
  }
  // Returns an element of d. With a gate, x is the sum of the gate and `other` the sum that it
  // opens.
  __device__ __forceinline__ float finished(float x, float other, const Addends& addends) const {
    if constexpr (kBias) {
      x += to_float(addends.bias);
      if constexpr (kGated) other += to_float(addends.other_bias);
    }
    if constexpr (kClamps) {
      x = smaller(x, limit_);
      x *= reciprocal_fast(1.0f + exp2_fast(-1.44269504f * gate_alpha_ * x));
      x *= smaller(larger(other, -limit_), limit_) + 1;
    } else {
      x = activate(x);
      if constexpr (kGated) x *= other;
    }
    return x;
  }

 private:
  static constexpr bool kBias = config::bias == config::bias_expert;
  static constexpr bool kClamps = config::activation == config::activation_swiglu_oai;

  const Element* bias_;
  float limit_, gate_alpha_;
  int to_other_, stride_;
};

}  // namespace kernwright
