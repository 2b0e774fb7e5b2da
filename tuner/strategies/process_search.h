#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "tuner/learning/gaussian_process.h"
#include "tuner/learning/random_draws.h"
#include "tuner/strategies/board.h"
#include "tuner/strategies/neighbourhood.h"
#include "tuner/strategies/tree_model.h"

namespace kernwright::detail {

/// Candidates by expected improvement under a Gaussian process over the raw parameters, chosen so
/// that each takes for granted what the ones before it will show. It sees at most 160 results, the
/// best half among them, and weighs a pool: what lies around the best, what the trees rank first,
/// and some at random.
class ProcessSearch {
 public:
  ProcessSearch(const FeatureTable& parameters, const Neighbourhood& neighbourhood,
                const Board& board, const TreeModel& trees, std::uint64_t seed);

  /// Learns from all results and chooses anew.
  void fit();
  /// The next of those chosen that is not taken.
  std::optional<std::size_t> next();

 private:
  std::vector<std::size_t> pool(const std::vector<std::size_t>& best);
  void choose(const std::vector<std::size_t>& pool);

  const Neighbourhood& neighbourhood_;
  const Board& board_;
  const TreeModel& trees_;
  RandomDraws draws_;
  GaussianProcess process_;
  bool adapted_ = false;
  std::size_t parameters_;
  std::deque<std::size_t> queue_;
};

}  // namespace kernwright::detail
