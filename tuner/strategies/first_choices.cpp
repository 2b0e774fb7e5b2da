#include "tuner/strategies/first_choices.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace kernwright::detail {
namespace {

/// Products of odd rows by narrow copies are 30 times slower than the best, and a dozen of them
/// took most of a search of 5 s on an H200.
constexpr double kHopeless = 8;

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
  std::erase_if(order, [&](std::size_t i) { return space.predicted_us[i] > hopeless_us; });
  std::set<int> templates;
  std::vector<std::size_t> others;
  std::erase_if(order, [&](std::size_t i) {
    const bool other = !templates.insert(space.template_of[i]).second;
    if (other) others.push_back(i);
    return other;
  });
  order.insert(order.end(), others.begin(), others.end());
  std::set<int> groups;
  for (const std::size_t candidate : order) {
    if (choices.size() == count) break;
    if (groups.insert(space.group_of[candidate]).second) choices.push_back(candidate);
  }
  return choices;
}

}  // namespace kernwright::detail
