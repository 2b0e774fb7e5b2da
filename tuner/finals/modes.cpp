#include "tuner/finals/modes.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "support/statistics.h"

namespace kernwright {
namespace {

/// A group has at least this share of the samples. A few outliers are not a group.
constexpr double kModeShare = 0.2;
/// The gap between two groups is wider than this many times the spread within them.
constexpr double kModeSpreads = 6;

struct Modes {
  double between = 0;   ///< the middle of the gap
  double distance = 0;  ///< from the median of one to the median of the other
};

/// Samples relative to what the others did in the same round.
std::vector<double> relative_to(std::span<const double> logs,
                                std::span<const std::span<const double>> others) {
  std::vector<std::pair<std::span<const double>, double>> usual;
  for (const std::span<const double> other : others) {
    if (other.size() >= logs.size()) {
      usual.emplace_back(other, median({other.begin(), other.end()}));
    }
  }
  std::vector<double> result(logs.begin(), logs.end());
  if (usual.empty()) return result;
  for (std::size_t r = 0; r < result.size(); ++r) {
    std::vector<double> round;
    for (const auto& [other, middle] : usual) round.push_back(other[r] - middle);
    result[r] -= median(std::move(round));
  }
  return result;
}

std::optional<Modes> find_modes(std::vector<double> sorted) {
  std::sort(sorted.begin(), sorted.end());
  const std::size_t n = sorted.size();
  const auto least = static_cast<std::size_t>(std::ceil(kModeShare * static_cast<double>(n)));
  std::size_t split = 0;
  for (std::size_t at = std::max<std::size_t>(least, 2); at + least <= n; ++at) {
    const double gap = sorted[at] - sorted[at - 1];
    if (split == 0 || gap > sorted[split] - sorted[split - 1]) split = at;
  }
  if (split == 0) return std::nullopt;
  const double gap = sorted[split] - sorted[split - 1];
  const auto part = [&](std::size_t from, std::size_t to) {
    const std::span mode(sorted.data() + from, to - from);
    const double middle = median({mode.begin(), mode.end()});
    std::vector<double> deviations;
    for (const double value : mode) deviations.push_back(std::abs(value - middle));
    return std::pair(middle, median(std::move(deviations)));
  };
  const auto [fast, fast_spread] = part(0, split);
  const auto [slow, slow_spread] = part(split, n);
  if (gap <= std::max(kModeGap, kModeSpreads * std::max(fast_spread, slow_spread))) {
    return std::nullopt;
  }
  return Modes{sorted[split - 1] + gap / 2, slow - fast};
}

}  // namespace

SlowMode slow_mode(std::span<const double> logs, std::span<const std::span<const double>> others) {
  SlowMode result{{logs.begin(), logs.end()}};
  const std::vector<double> relative = relative_to(logs, others);
  if (const std::optional<Modes> modes = find_modes(relative)) {
    result.bimodal = true;
    for (std::size_t r = 0; r < relative.size(); ++r) {
      if (relative[r] < modes->between) result.logs[r] += modes->distance;
    }
  }
  return result;
}

}  // namespace kernwright
