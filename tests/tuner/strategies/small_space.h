#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "support/random.h"
#include "tuner/strategies/search_strategy.h"

namespace kernwright {

/// A search space over all points of a grid, without predictions.
struct SmallSpace {
  std::vector<Configuration> configurations;
  SearchSpace space;

  explicit SmallSpace(const std::vector<std::int64_t>& sizes) {
    std::size_t count = 1;
    for (const std::int64_t size : sizes) count *= static_cast<std::size_t>(size);
    for (std::size_t i = 0; i < count; ++i) {
      auto rest = static_cast<std::int64_t>(i);
      std::vector<std::pair<std::string, std::int64_t>> values;
      for (std::size_t p = 0; p < sizes.size(); ++p) {
        values.emplace_back("P" + std::to_string(p), rest % sizes[p]);
        rest /= sizes[p];
      }
      configurations.emplace_back(std::move(values));
      space.group_of.push_back(static_cast<int>(i));
    }
    space.template_of.assign(count, 0);
    space.predicted_us.assign(count, 0.0);
    for (const Configuration& one : configurations) space.configurations.push_back(&one);
  }
  SmallSpace(const SmallSpace&) = delete;
  SmallSpace& operator=(const SmallSpace&) = delete;

  std::int64_t value(std::size_t candidate, std::size_t parameter) const {
    return configurations[candidate].values()[parameter].second;
  }
};

inline Trial timed_trial(double us) {
  Trial trial;
  trial.outcome = us > 0 ? Outcome::ok : Outcome::launch_failed;
  if (us > 0) trial.measurement.samples_us = {us};
  return trial;
}

/// Times by candidate; 0 fails.
using Times = std::function<double(std::size_t)>;

/// Returns the proposals, the default among them, until a time of at most `good_us` was found;
/// `cap` if it was not.
inline std::size_t proposals_until(std::string_view strategy_name, const SearchSpace& space,
                                   const Times& us, double good_us, std::uint64_t seed,
                                   std::size_t cap) {
  const auto strategy = make_strategy(strategy_name, space, seed).value();
  strategy->report(space.default_index, timed_trial(us(space.default_index)));
  std::size_t count = 1;
  while (count < cap) {
    const std::vector<std::size_t> batch = strategy->propose(16);
    if (batch.empty()) break;
    for (const std::size_t candidate : batch) {
      ++count;
      const double time = us(candidate);
      if (time > 0 && time <= good_us) return count;
      strategy->report(candidate, timed_trial(time));
    }
  }
  return cap;
}

/// The median over 9 seeds.
inline std::size_t median_proposals(std::string_view strategy, const SearchSpace& space,
                                    const Times& us, double good_us, std::size_t cap) {
  std::vector<std::size_t> counts;
  for (std::uint64_t seed = 0; seed < 9; ++seed) {
    counts.push_back(proposals_until(strategy, space, us, good_us, seed, cap));
  }
  std::nth_element(counts.begin(), counts.begin() + 4, counts.end());
  return counts[4];
}

}  // namespace kernwright
