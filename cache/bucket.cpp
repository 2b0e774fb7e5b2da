#include "cache/bucket.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "model/find_named.h"
#include "support/text.h"

namespace kernwright {

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
    const Dim& dim = operation.dims[i];
    const std::int64_t of_a = sizes_of_a[i];
    const std::int64_t of_b = sizes_of_b[i];
    if (of_a < 1 || of_b < 1) return std::nullopt;
    if (of_a == of_b) continue;
    if (dim.match != DimMatch::bucket || dim.family(of_a) != dim.family(of_b)) return std::nullopt;
    const double ratio =
        static_cast<double>(std::max(of_a, of_b)) / static_cast<double>(std::min(of_a, of_b));
    if (!(ratio <= dim.distance)) return std::nullopt;
    farthest = std::max(farthest, ratio);
  }
  return farthest;
}

std::string bucket_pattern(const Operation& operation, const Problem& normalized) {
  std::string pattern = normalized.operation();
  bool any = false;
  for (const auto& [name, size] : normalized.dims()) {
    const Dim& dim = *find_named(operation.dims, name);
    const bool open = dim.match == DimMatch::bucket && dim.distance > 1;
    any = any || open;
    pattern += concat(' ', name, '=', open ? "?" : std::to_string(size));
  }
  for (const auto& [name, value] : normalized.flags()) pattern += concat(' ', name, '=', value);
  return any ? pattern : std::string();
}

}  // namespace kernwright
