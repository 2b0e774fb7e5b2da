#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/candidate/candidate.h"
#include "model/expression/expression.h"

namespace kernwright {

/// Tells quickly at which sizes of some dims a candidate is valid: it computes only the values and
/// conditions that depend on these dims. Immutable; any thread may use it.
class SizeCheck {
 public:
  /// `valid` is a candidate that breaks no habit, and `free` are dims of its problem. Dims with a
  /// default that its problem leaves out follow the others.
  SizeCheck(const Candidate& valid, std::span<const std::string> free);

  /// Returns whether the operation takes the problem with these sizes of the free dims, and the
  /// template applies, its rules hold, and no habit is broken. `make_candidate` may find more: it
  /// checks the limits of CUDA and the alignment of tensor maps too. Allocates nothing.
  bool holds(std::span<const std::int64_t> sizes) const;

 private:
  static constexpr std::size_t kMostValues = 96;

  /// A value that depends on the free dims, and that conditions read.
  struct Step {
    PlacedExpression expression;
    bool zero_if_none;  ///< a value of the operation, which is 0 if it cannot be computed
  };

  std::size_t free_count_;
  std::vector<Step> steps_;  ///< in a row their values follow the sizes
  std::vector<PlacedExpression> conditions_;
};

}  // namespace kernwright
