#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/operation/bound_problem.h"
#include <kernwright/problem.h>

namespace kernwright {

/// Returns how far apart two problems are: the largest ratio of their sizes in a dim that is
/// matched by bucket. Returns nullopt if one may not answer for the other, because a size is in
/// another interval or beyond the dim's distance, or because something else differs. `other` is
/// normalised, and may be of an operation as it once was.
std::optional<double> bucket_distance(const BoundProblem& problem, const Problem& other);

/// The shapes that may answer for a problem, by their text alone.
struct BucketPattern {
  struct Open {
    const Dim* dim;
    std::int64_t size;  ///< asked for
  };
  std::string text;        ///< canonical, with `?` for the dims that may differ
  std::vector<Open> open;  ///< these dims, in the order of the text; empty if none may differ

  /// Returns the distance of a shape with these sizes of `open`, as `bucket_distance` does. If the
  /// last sizes are missing, it is a lower bound.
  std::optional<double> distance(const std::vector<std::int64_t>& sizes) const;
};

/// Returns the pattern of a problem. Its dims belong to the problem's operation, which outlives the
/// pattern.
BucketPattern bucket_pattern(const BoundProblem& problem);

}  // namespace kernwright
