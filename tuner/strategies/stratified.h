#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "tuner/learning/random_draws.h"
#include "tuner/strategies/neighbourhood.h"

namespace kernwright::detail {

/// Draws candidates such that every value of every parameter gets its share early: of several drawn
/// at random, the one whose values came up least so far. Constraints leave no exact design.
class StratifiedDraws {
 public:
  StratifiedDraws(const Neighbourhood& neighbourhood, std::size_t candidates)
      : neighbourhood_(neighbourhood),
        candidates_(candidates),
        used_(neighbourhood.template_count()) {}

  /// Returns one of the candidates that `allowed` lets through, or nothing if none was drawn.
  std::optional<std::size_t> next(RandomDraws& draws,
                                  const std::function<bool(std::size_t)>& allowed);

 private:
  double crowding(std::size_t candidate);

  const Neighbourhood& neighbourhood_;
  std::size_t candidates_;
  /// How often each value was drawn, per template and parameter.
  std::vector<std::vector<std::vector<double>>> used_;
};

}  // namespace kernwright::detail
