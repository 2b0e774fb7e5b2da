#pragma once

#include <cstdint>
#include <memory>

#include "tuner/strategies/search_strategy.h"

namespace kernwright::detail {

/// The makers behind the table in search_strategy.cpp. `space` outlives the strategy.
std::unique_ptr<SearchStrategy> make_exhaustive(const SearchSpace& space, std::uint64_t seed);
std::unique_ptr<SearchStrategy> make_local_search(const SearchSpace& space, std::uint64_t seed);
std::unique_ptr<SearchStrategy> make_portfolio(const SearchSpace& space, std::uint64_t seed);
std::unique_ptr<SearchStrategy> make_random(const SearchSpace& space, std::uint64_t seed);
std::unique_ptr<SearchStrategy> make_ranked(const SearchSpace& space, std::uint64_t seed);

}  // namespace kernwright::detail
