#include "service/report/explained_spread.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>

namespace kernwright {
namespace {

/// The log times of one value.
struct Group {
  double sum = 0;
  double squares = 0;
  int count = 0;

  void add(double value) {
    sum += value;
    squares += value * value;
    ++count;
  }
  /// Returns the sum of squared distances from their mean.
  double within() const { return squares - sum * sum / count; }
};

/// Returns the share that the groups explain of the spread of all their values.
template <typename Key>
double share_of(const std::map<Key, Group>& groups) {
  Group all;
  double within = 0;
  for (const auto& [key, group] : groups) {
    all.sum += group.sum;
    all.squares += group.squares;
    all.count += group.count;
    within += std::max(0.0, group.within());
  }
  const double total = all.within();
  const int degrees = all.count - static_cast<int>(groups.size());
  if (degrees <= 0 || total <= 0) return 0;
  const double by_chance = (static_cast<double>(groups.size()) - 1) * within / degrees;
  return std::clamp((total - within - by_chance) / total, 0.0, 1.0);
}

}  // namespace

std::vector<ExplainedSpread> explained_spread(const TrialTable& table,
                                              const std::string& kernel_template) {
  std::map<std::string, Group> templates;
  std::map<std::string, std::map<std::int64_t, Group>> parameters;
  int all = 0;
  int own = 0;
  for (const TrialRow& row : table.rows) {
    if (row.outcome != Outcome::ok || row.us <= 0) continue;
    const double log = std::log(row.us);
    ++all;
    templates[row.choice.kernel_template].add(log);
    if (row.choice.kernel_template != kernel_template) continue;
    ++own;
    for (const auto& [name, value] : row.choice.configuration.values()) {
      parameters[name][value].add(log);
    }
  }
  std::vector<ExplainedSpread> explained;
  if (all >= kFewestExplained && templates.size() > 1) {
    explained.push_back({"template", share_of(templates), static_cast<int>(templates.size())});
  }
  if (own >= kFewestExplained) {
    for (const auto& [name, values] : parameters) {
      if (values.size() < 2) continue;
      explained.push_back({name, share_of(values), static_cast<int>(values.size())});
    }
  }
  std::stable_sort(
      explained.begin(), explained.end(),
      [](const ExplainedSpread& a, const ExplainedSpread& b) { return a.share > b.share; });
  return explained;
}

}  // namespace kernwright
