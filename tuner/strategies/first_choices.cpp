#include "tuner/strategies/first_choices.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

namespace kernwright::detail {
namespace {

/// Products of odd rows by narrow copies are 30 times slower than the best, and a dozen of them
/// took most of a search of 5 s on an H200.
constexpr double kHopeless = 8;

/// The fastest of a template is chosen too, unless it is predicted to be this much slower: the
/// model may be wrong about a whole template, and a chain may hide what makes a kernel slow alone.
constexpr double kWorthALook = 1.5;

/// Holds the other candidates of a choice's template back, as a share of their predictions: the
/// model errs alike on similar candidates. Candidates that differ in at most `kFewDifferences`
/// parameters are held back more.
constexpr double kSameTemplate = 0.02;
constexpr double kAlike = 0.04;
constexpr int kFewDifferences = 1;

/// The place in `order` of the first template that is worth a look and has none of the `choices`,
/// if so many templates have none that all that are `left` go to them.
std::optional<std::size_t> left_out(const SearchSpace& space, const std::vector<std::size_t>& order,
                                    const std::vector<std::size_t>& choices, std::size_t left) {
  const double slowest_us = kWorthALook * space.predicted_us[order.front()];
  std::set<int> seen;
  for (const std::size_t choice : choices) seen.insert(space.template_of[choice]);
  std::optional<std::size_t> first;
  std::size_t count = 0;
  for (std::size_t k = 0; k < order.size() && space.predicted_us[order[k]] <= slowest_us; ++k) {
    if (!seen.insert(space.template_of[order[k]]).second) continue;
    if (!first) first = k;
    ++count;
  }
  return count < left ? std::nullopt : first;
}

/// Returns whether two candidates of one template are nearly the same.
bool alike(const SearchSpace& space, std::size_t a, std::size_t b) {
  const auto& values = space.configurations[a]->values();
  const auto& others = space.configurations[b]->values();
  int differences = 0;
  for (std::size_t i = 0; i < values.size() && differences <= kFewDifferences; ++i) {
    differences += values[i].second != others[i].second ? 1 : 0;
  }
  return differences <= kFewDifferences;
}

}  // namespace

bool has_predictions(const SearchSpace& space) {
  const std::vector<double>& us = space.predicted_us;
  return std::all_of(us.begin(), us.end(), [](double one) { return one > 0; }) &&
         std::any_of(us.begin(), us.end(), [&](double one) { return one != us.front(); });
}

std::vector<std::size_t> by_prediction(const SearchSpace& space) {
  const std::vector<double>& us = space.predicted_us;
  std::vector<std::size_t> order(us.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&us](std::size_t a, std::size_t b) { return us[a] < us[b]; });
  return order;
}

std::vector<std::size_t> first_choices(const SearchSpace& space, std::size_t count) {
  std::vector<std::size_t> choices;
  if (!has_predictions(space)) return choices;
  std::vector<std::size_t> order = by_prediction(space);
  const double hopeless_us = kHopeless * space.predicted_us[order.front()];
  std::set<int> groups;
  std::erase_if(order, [&](std::size_t i) {
    return space.predicted_us[i] > hopeless_us || !groups.insert(space.group_of[i]).second;
  });
  std::vector<double> handicap(order.size(), 1);
  const std::size_t most = std::min(count, order.size());
  while (choices.size() < most) {
    std::size_t next = order.size();
    double least_us = std::numeric_limits<double>::infinity();
    for (std::size_t k = 0; k < order.size(); ++k) {
      const double us = space.predicted_us[order[k]];
      if (us >= least_us) break;  // nor is any that follows
      if (us * handicap[k] >= least_us) continue;
      least_us = us * handicap[k];
      next = k;
    }
    if (!choices.empty()) {
      next = left_out(space, order, choices, most - choices.size()).value_or(next);
    }
    const std::size_t chosen = order[next];
    choices.push_back(chosen);
    for (std::size_t k = 0; k < order.size(); ++k) {
      if (space.template_of[order[k]] != space.template_of[chosen]) continue;
      handicap[k] += alike(space, order[k], chosen) ? kAlike : kSameTemplate;
    }
    handicap[next] = std::numeric_limits<double>::infinity();
  }
  return choices;
}

}  // namespace kernwright::detail
