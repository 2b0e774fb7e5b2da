#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "tuner/learning/feature_table.h"
#include "tuner/learning/gaussian_process.h"
#include "tuner/learning/random_draws.h"
#include "tuner/strategies/board.h"
#include "tuner/strategies/neighbourhood.h"

namespace kernwright::detail {

/// Bayesian optimisation: candidates by expected improvement under a Gaussian process over the raw
/// parameters. The prior mean is the cost model's prediction times a slope, so that the process
/// learns how the model is wrong. The slope is fitted by regression towards 1: a model that is
/// wrong altogether loses its say. If the model does not tell candidates apart, the mean is flat.
///
/// A second process learns which candidates fail, and leaves out those that are likely to fail.
///
/// A batch is chosen one after the other, each conditioned on those before it. The process sees at
/// most `kRows` results, the best half among them. It weighs a pool of candidates: the neighbours
/// of the best, the first of an order, and some at random.
class BayesianSearch {
 public:
  /// `order` has all candidates, the most promising first. All arguments outlive the search.
  BayesianSearch(const SearchSpace& space, const Neighbourhood& neighbourhood, const Board& board,
                 std::span<const std::size_t> order, std::uint64_t seed);

  /// Returns the next candidate to try, not taken; nothing while there are too few results. Learns
  /// from the results first if enough came in since the last fit.
  std::optional<std::size_t> next();

  bool fitted() const { return fitted_results_ > 0; }
  /// The logarithm of the time that it expects, relative to the best when it was fitted.
  double expected_log(std::size_t candidate) const;

 private:
  double prior_mean(std::size_t candidate) const { return slope_ * predicted_log_[candidate]; }
  /// Returns whether the candidate is more likely to fail than not.
  bool fails(std::size_t candidate) const;
  void fit();
  void fit_failures();
  /// Returns the steps that adapt the hyperparameters in a fit to so many rows; the first fit takes
  /// more.
  int steps(std::size_t rows, bool first) const;
  std::vector<std::size_t> pool(std::span<const std::size_t> best);
  void choose(std::span<const std::size_t> pool);

  const Neighbourhood& neighbourhood_;
  const Board& board_;
  std::span<const std::size_t> order_;
  RandomDraws draws_;
  FeatureTable parameters_;
  GaussianProcess process_;   ///< of the logarithms of the times, less the prior mean
  GaussianProcess failures_;  ///< 1 for a candidate that fails, 0 for others
  bool saw_failures_ = false;
  std::vector<double> predicted_log_;  ///< 0 for the fastest
  double slope_ = 1;                   ///< of the prior mean over the predictions
  std::size_t fitted_results_ = 0;
  std::deque<std::size_t> queue_;
};

}  // namespace kernwright::detail
