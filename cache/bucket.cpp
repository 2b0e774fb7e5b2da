#include "cache/bucket.h"

#include <algorithm>
#include <cstddef>

#include "support/text.h"

namespace kernwright {

std::optional<double> bucket_distance(const Operation& operation, const Problem& a,
                                      const Problem& b) {
  if (a.operation() != b.operation() || a.flags() != b.flags() ||
      a.dims().size() != operation.dims.size() || b.dims().size() != operation.dims.size()) {
    return std::nullopt;
  }
  double farthest = 1;
  for (std::size_t i = 0; i < operation.dims.size(); ++i) {
    const Dim& dim = operation.dims[i];
    const std::int64_t of_a = a.dims()[i].second;
    const std::int64_t of_b = b.dims()[i].second;
    if (a.dims()[i].first != dim.name || b.dims()[i].first != dim.name) return std::nullopt;
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
  for (std::size_t i = 0; i < normalized.dims().size(); ++i) {
    const auto& [name, size] = normalized.dims()[i];
    const Dim& dim = operation.dims[i];
    const bool open = dim.match == DimMatch::bucket && dim.distance > 1;
    any = any || open;
    pattern += concat(' ', name, '=', open ? "?" : std::to_string(size));
  }
  for (const auto& [name, value] : normalized.flags()) pattern += concat(' ', name, '=', value);
  return any ? pattern : std::string();
}

}  // namespace kernwright
