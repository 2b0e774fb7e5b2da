#include "tuner/strategies/search_strategy.h"

#include <algorithm>
#include <iterator>

#include "support/spelling.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/strategies/strategies.h"

namespace kernwright {
namespace {

struct Row {
  std::string_view name;
  std::unique_ptr<SearchStrategy> (*make)(const SearchSpace&, std::uint64_t seed);
};

constexpr Row kStrategies[] = {
    {"exhaustive", detail::make_exhaustive}, {"random", detail::make_random},
    {"ranked", detail::make_ranked},         {"local_search", detail::make_local_search},
    {"portfolio", detail::make_portfolio},
};

}  // namespace

std::vector<std::string_view> strategy_names() {
  std::vector<std::string_view> names;
  for (const Row& row : kStrategies) names.push_back(row.name);
  return names;
}

Result<void> check_strategy(std::string_view name) {
  std::string known;
  std::vector<std::string> names;
  for (const Row& row : kStrategies) {
    if (row.name == name) return {};
    names.emplace_back(row.name);
    known += concat(known.empty() ? "" : ", ", row.name);
  }
  return Error{
      ErrorCode::invalid_argument,
      concat("no strategy \"", name, "\"", did_you_mean(name, names), ", there are ", known)};
}

Result<std::unique_ptr<SearchStrategy>> make_strategy(std::string_view name,
                                                      const SearchSpace& space,
                                                      std::uint64_t seed) {
  KW_TRY(check_strategy(name));
  const auto* const row = std::find_if(std::begin(kStrategies), std::end(kStrategies),
                                       [&](const Row& each) { return each.name == name; });
  return row->make(space, seed);
}

}  // namespace kernwright
