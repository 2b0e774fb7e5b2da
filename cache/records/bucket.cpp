#include "cache/records/bucket.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "support/find_named.h"
#include "support/text.h"

namespace kernwright {
namespace {

/// The ratio of two sizes of a dim; nothing where one may not answer for the other.
std::optional<double> size_distance(const Dim& dim, std::int64_t a, std::int64_t b) {
  if (a < 1 || b < 1) return std::nullopt;
  if (a == b) return 1;
  if (dim.match != DimMatch::bucket || dim.family(a) != dim.family(b)) return std::nullopt;
  const double ratio = static_cast<double>(std::max(a, b)) / static_cast<double>(std::min(a, b));
  if (!(ratio <= dim.distance)) return std::nullopt;
  return ratio;
}

}  // namespace

std::optional<double> bucket_distance(const Operation& operation, const Problem& a,
                                      const Problem& b) {
  if (a.operation() != b.operation() || a.flags() != b.flags()) return std::nullopt;
  for (const Problem* problem : {&a, &b}) {
    for (const auto& [name, size] : problem->dims()) {
      if (!find_named(operation.dims, name)) return std::nullopt;
    }
  }
  const std::vector<std::int64_t> sizes_of_a = operation.sizes(a);
  const std::vector<std::int64_t> sizes_of_b = operation.sizes(b);
  double farthest = 1;
  for (std::size_t i = 0; i < operation.dims.size(); ++i) {
    const std::optional<double> ratio =
        size_distance(operation.dims[i], sizes_of_a[i], sizes_of_b[i]);
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

BucketPattern bucket_pattern(const Operation& operation, const Problem& normalized) {
  BucketPattern pattern;
  pattern.text = normalized.operation();
  for (const auto& [name, size] : normalized.dims()) {
    const Dim& dim = *find_named(operation.dims, name);
    const bool open = dim.match == DimMatch::bucket && dim.distance > 1;
    if (open) pattern.open.push_back({.dim = &dim, .size = size});
    pattern.text += concat(' ', name, '=', open ? "?" : std::to_string(size));
  }
  for (const auto& [name, value] : normalized.flags()) {
    pattern.text += concat(' ', name, '=', value);
  }
  return pattern;
}

}  // namespace kernwright
