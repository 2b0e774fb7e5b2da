#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "tuner/learning/boosted_trees.h"
#include "tuner/learning/random_draws.h"
#include "tuner/strategies/board.h"

namespace kernwright::detail {

/// What boosted trees expect of the candidates of a search: log times by an ensemble, whose spread
/// says how sure that is, and whether a candidate fails. Failures teach the latter alone. The order
/// of the results does not matter to it.
class TreeModel {
 public:
  TreeModel(const FeatureTable& features, const Board& board, std::uint64_t seed)
      : features_(features), board_(board), seed_(seed) {}

  /// Learns from all results, and ranks the open candidates that `allowed` lets through (of more
  /// than 20,000 as many, drawn anew each time).
  void fit(const std::function<bool(std::size_t)>& allowed);
  bool fitted() const { return fitted_; }

  /// Lower confidence bounds of log times, `spreads` deviations below the mean.
  std::vector<double> lower(std::span<const std::size_t> rows, double spreads) const;
  /// Whether each is more likely to fail than not.
  std::vector<bool> fails(std::span<const std::size_t> rows) const;

  /// The open candidate with the least lower bound, as of the last fit, that is not taken and not
  /// expected to be hopeless.
  std::optional<std::size_t> next();
  /// The first of the ranking that are open.
  std::vector<std::size_t> best(std::size_t count) const;
  /// The least time, 0.5 deviations below the mean, that the first of the ranking may take that are
  /// open.
  std::optional<double> optimistic_log_us() const;

 private:
  static constexpr std::size_t kEnsemble = 5;
  struct Ranked {
    double lower = 0;
    std::size_t candidate = 0;
    double optimistic = 0;
  };

  void rank(std::vector<std::size_t> open);

  const FeatureTable& features_;
  const Board& board_;
  std::uint64_t seed_;
  std::uint64_t fits_ = 0;
  bool fitted_ = false;
  bool has_failures_ = false;
  std::array<BoostedTrees, kEnsemble> times_;
  BoostedTrees failures_;
  std::deque<Ranked> ranking_;
};

/// A candidate expected to take more than this many times the best is left to chance.
inline constexpr double kHopelessLog = 0.405465108108164;  // ln 1.5

}  // namespace kernwright::detail
