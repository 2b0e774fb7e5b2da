#pragma once
// The epilogue of a product of experts with quantized weights: ExpertEpilogue, and a factor for
// each row of d if the problem's flags ask for it.

#include <kernwright/matmul/expert_epilogue.cuh>

namespace kernwright {

class ScaledExpertEpilogue {
 public:
  using Element = ExpertEpilogue::Element;

  // `row_scale` has one element for each row of d. It may be null if the problem has none.
  __device__ ScaledExpertEpilogue(const ExpertEpilogue& sums, const float* row_scale)
      : sums_(sums), row_scale_(row_scale) {}

  struct Addends {
    ExpertEpilogue::Addends of_sums;
    float factor;
  };
  __device__ __forceinline__ Addends addends(int row, int column) const {
    Addends addends{sums_.addends(column), 0};
    if constexpr (kRowScale) addends.factor = row_scale_[row];
    return addends;
  }
  __device__ __forceinline__ float finished(float x, float other, const Addends& addends) const {
    x = sums_.finished(x, other, addends.of_sums);
    return kRowScale ? x * addends.factor : x;
  }

 private:
  static constexpr bool kRowScale = config::scale_rows == config::scale_rows_given;

  ExpertEpilogue sums_;
  const float* row_scale_;
};

}  // namespace kernwright
