#include "service/answer/family.h"

#include <algorithm>
#include <utility>

namespace kernwright {
namespace {

/// Returns the largest ratio of two sizes of a dim, or nullopt if one of them is beyond its
/// distance.
std::optional<double> ratio_of(std::span<const std::int64_t> a, const std::vector<std::int64_t>& b,
                               const std::vector<double>& distances) {
  double farthest = 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto [less, more] = std::minmax(a[i], b[i]);
    const double ratio = static_cast<double>(more) / static_cast<double>(less);
    if (ratio > distances[i]) return std::nullopt;
    farthest = std::max(farthest, ratio);
  }
  return farthest;
}

}  // namespace

std::optional<std::size_t> Family::choose(std::span<const std::int64_t> sizes) const {
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < free[i].first || sizes[i] > free[i].last) return std::nullopt;
  }
  const Point* nearest = nullptr;
  double distance = 0;
  for (const Point& point : points) {
    const std::optional<double> ratio = ratio_of(sizes, point.sizes, distances);
    if (!ratio) continue;
    if (*ratio == 1) return std::nullopt;
    if (!point.answers_near || (nearest != nullptr && *ratio >= distance)) continue;
    nearest = &point;
    distance = *ratio;
  }
  if (nearest != nullptr) {
    const bool holds = nearest->kernel && kernels[*nearest->kernel].check.holds(sizes);
    return holds ? nearest->kernel : std::nullopt;
  }
  const DispatchTable::Order& order = table.order(sizes);
  for (std::size_t i = 0; i < listed.size(); ++i) {
    const std::optional<std::size_t> kernel = listed[order[i]];
    if (kernel && kernels[*kernel].check.holds(sizes)) return kernel;
  }
  return std::nullopt;
}

Problem::Dims Family::dims(std::span<const std::int64_t> sizes) const {
  Problem::Dims dims = example.problem().dims();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::ranges::find(dims, free[i].name, &std::pair<std::string, std::int64_t>::first)->second =
        sizes[i];
  }
  return dims;
}

}  // namespace kernwright
