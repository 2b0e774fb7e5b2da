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

std::optional<std::size_t> Family::choose(const Section& section,
                                          std::span<const std::int64_t> sizes) const {
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < section.ranges[i].first || sizes[i] > section.ranges[i].last) {
      return std::nullopt;
    }
  }
  FreeSizes of_table;
  for (const std::size_t place : section.places) of_table.add(sizes[place]);
  const DispatchTable::Order& order = section.table.order(of_table.values());
  for (std::size_t i = 0; i < section.listed.size(); ++i) {
    const std::optional<std::size_t> kernel = section.listed[order[i]];
    if (kernel && kernels[*kernel]->check.holds(sizes)) return kernel;
  }
  return std::nullopt;
}

std::optional<std::size_t> Family::choose(std::span<const std::int64_t> sizes) const {
  const Point* nearest = nullptr;
  double distance = 0;
  for (const Point& point : points) {
    const std::optional<double> ratio = ratio_of(sizes, point.sizes, distances);
    if (!ratio) continue;
    if (*ratio == 1) return point.own;
    if (!point.answers_near || (nearest != nullptr && *ratio >= distance)) continue;
    nearest = &point;
    distance = *ratio;
  }
  for (const Section& section : sections) {
    if (!section.measured && nearest != nullptr) break;
    if (const std::optional<std::size_t> kernel = choose(section, sizes)) return kernel;
  }
  const bool holds =
      nearest != nullptr && nearest->near && kernels[*nearest->near]->check.holds(sizes);
  return holds ? nearest->near : std::nullopt;
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
