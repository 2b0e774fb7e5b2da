#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/operation/bound_problem.h"
#include <kernwright/problem.h>

namespace kernwright {

/// How far apart two problems are: the largest ratio of their sizes in a dim that is matched by
/// bucket. Nothing where one may not answer for the other, because a size lies in another family or
/// beyond the dim's distance, or because something else differs. `other` is normalised, and may be
/// of an operation as it once was.
std::optional<double> bucket_distance(const BoundProblem& problem, const Problem& other);

/// The shapes that may answer for a problem, by their text alone.
struct BucketPattern {
  struct Open {
    const Dim* dim;
    std::int64_t size;  ///< asked for
  };
  std::string text;        ///< canonical, with `?` for the dims that may differ
  std::vector<Open> open;  ///< these dims, in the order of the text; empty where none may differ

  /// How far away a shape with these sizes of `open` is, as `bucket_distance` says it. Where the
  /// last sizes are missing, it is a lower bound.
  std::optional<double> distance(const std::vector<std::int64_t>& sizes) const;
};

/// The dims are those of the problem's operation, which outlives the pattern.
BucketPattern bucket_pattern(const BoundProblem& problem);

}  // namespace kernwright
