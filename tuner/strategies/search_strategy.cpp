#include "tuner/strategies/search_strategy.h"

#include "support/text.h"
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

Result<std::unique_ptr<SearchStrategy>> make_strategy(std::string_view name,
                                                      const SearchSpace& space,
                                                      std::uint64_t seed) {
  std::string known;
  for (const Row& row : kStrategies) {
    if (row.name == name) return row.make(space, seed);
    known += concat(known.empty() ? "" : ", ", row.name);
  }
  return Error{ErrorCode::not_found, concat("no strategy \"", name, "\"; there are ", known)};
}

}  // namespace kernwright
