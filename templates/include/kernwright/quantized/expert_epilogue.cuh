#pragma once
// The epilogue of a product of experts, on sums in fp32: row_scale[row] * activation(sum +
// bias[column]), or with a gate row_scale[row] * activation(gate + bias[column]) * (up + bias[n +
// column]), each part only if the problem's flags ask for it. swiglu_oai is the gated form of
// gpt-oss: min(g, limit) sigmoid(gate_alpha min(g, limit)) (clamp(u, -limit, limit) + 1).

#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/matmul/activate.cuh>

namespace kernwright {

constexpr bool kGated = config::gate == config::gate_stacked;

class ExpertEpilogue {
 public:
  using Element = config::out_t;

  // `bias` has the elements of one expert, n or with a gate 2 n, and `row_scale` one of each row of
  // d. Tensors that the problem does not have may be null.
  __device__ ExpertEpilogue(const Element* bias, const float* row_scale, float limit,
                            float gate_alpha, int n)
      : bias_(bias), row_scale_(row_scale), limit_(limit), gate_alpha_(gate_alpha), n_(n) {}

  // The numbers that an element needs besides its sums, as they are in memory. They may be loaded
  // before the sums are known.
  struct Addends {
    Element bias, other_bias;
    float factor;
  };
  __device__ __forceinline__ Addends addends(int row, int column) const {
    Addends addends{};
    if constexpr (kBias) {
      addends.bias = bias_[column];
      if constexpr (kGated) addends.other_bias = bias_[n_ + column];
    }
    if constexpr (kRowScale) addends.factor = row_scale_[row];
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
    return kRowScale ? x * addends.factor : x;
  }

 private:
  static constexpr bool kBias = config::bias == config::bias_expert;
  static constexpr bool kRowScale = config::scale_rows == config::scale_rows_given;
  static constexpr bool kClamps = config::activation == config::activation_swiglu_oai;

  const Element* bias_;
  const float* row_scale_;
  float limit_, gate_alpha_;
  int n_;
};

}  // namespace kernwright
