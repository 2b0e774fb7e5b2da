#include "cache/records/bucket.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "support/names.h"
#include "support/text.h"

namespace kernwright {
namespace {

/// Returns the ratio of two sizes of a dim, or nullopt if one may not answer for the other.
std::optional<double> size_distance(const Dim& dim, std::int64_t a, std::int64_t b) {
  if (a < 1 || b < 1) return std::nullopt;
  if (a == b) return 1;
  if (dim.match != DimMatch::bucket || dim.interval(a) != dim.interval(b)) return std::nullopt;
  const double ratio = static_cast<double>(std::max(a, b)) / static_cast<double>(std::min(a, b));
  if (!(ratio <= dim.distance)) return std::nullopt;
  return ratio;
}

}  // namespace

std::optional<double> bucket_distance(const BoundProblem& problem, const Problem& other) {
  const Operation& operation = problem.operation();
  if (other.operation() != operation.name || other.flags() != problem.problem().flags()) {
    return std::nullopt;
  }
  for (const auto& [name, size] : other.dims()) {
    if (!find_named(operation.dims, name)) return std::nullopt;
  }
  const std::vector<std::int64_t> sizes = operation.sizes(other);
  double farthest = 1;
  for (std::size_t i = 0; i < operation.dims.size(); ++i) {
    const Dim& dim = operation.dims[i];
    const std::optional<double> ratio = size_distance(dim, problem.size(dim), sizes[i]);
    if (!ratio) return std::nullopt;
    farthest = std::max(farthest, *ratio);
  }
  return farthest;
}

std::optional<double> BucketPattern::distance(const std::vector<std::int64_t>& sizes) const {
  double farthest = 1;
  for (std::size_t i = 0; i < std::min(open.size(), sizes.size()); ++i) {
    const std::optional<double> ratio = size_distance(*open[i].dim, open[i].size, sizes[i]);
    if (!ratio) return std::nullopt;
    farthest = std::max(farthest, *ratio);
  }
  return farthest;
}

BucketPattern bucket_pattern(const BoundProblem& problem) {
  BucketPattern pattern;
  pattern.text = problem.operation().name;
  for (const auto& [name, size] : problem.problem().dims()) {
    const Dim& dim = *find_named(problem.operation().dims, name);
    const bool open = dim.match == DimMatch::bucket && dim.distance > 1;
    if (open) pattern.open.push_back({.dim = &dim, .size = size});
    pattern.text += concat(' ', name, '=', open ? "?" : std::to_string(size));
  }
  for (const auto& [name, value] : problem.problem().flags()) {
    pattern.text += concat(' ', name, '=', value);
  }
  return pattern;
}

}  // namespace kernwright
