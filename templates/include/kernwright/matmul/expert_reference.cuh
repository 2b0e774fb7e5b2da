#pragma once
// The epilogue of a product of experts for references, in fp64, with the magnitude to which the
// error of an element is relative.

#include <kernwright/config.cuh>
#include <kernwright/matmul/activate_reference.cuh>

namespace kernwright {

// A sum, and the magnitude to which its error is relative.
struct ExpertSum {
  double value;
  float uncertain;
};

struct ExpertResult {
  double value, magnitude;
};

// Returns an element from its sums; `other` is the one that a gate opens. `accepted` is the error
// that the checks accept in a sum, relative to its magnitude. Errors e X and e Y of the two factors
// of a gated product make e (|x| Y + |y| X + e X Y).
__device__ inline ExpertResult finished(ExpertSum sum, ExpertSum other, float accepted, float limit,
                                        float gate_alpha) {
  double activated = activate(sum.value);
  if (config::activation == config::activation_swiglu_oai) {
    const double most = limit, gate = smaller(sum.value, most);
    activated = gate / (1 + exp(-gate_alpha * gate));
    other.value = smaller(larger(other.value, -most), most) + 1;
    other.uncertain += 1;
  }
  const double steep = kSteepest * static_cast<double>(sum.uncertain);
  if (config::gate == config::gate_none) return {activated, steep};
  const double of_other = other.uncertain;
  return {activated * other.value,
          fabs(activated) * of_other + steep * (fabs(other.value) + accepted * of_other)};
}

}  // namespace kernwright
