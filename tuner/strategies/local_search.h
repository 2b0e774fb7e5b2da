#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "tuner/learning/random_draws.h"
#include "tuner/strategies/board.h"
#include "tuner/strategies/neighbourhood.h"

namespace kernwright::detail {

/// Iterated local search over candidates that differ in one parameter: moves to the first better
/// neighbour; at a local optimum changes three parameters of the best optimum of the chain and
/// descends from there; starts a new chain at random after four such attempts without gain. Runs
/// ahead of the reports: further neighbours are handed out while others are measured. The best
/// candidate of all, whoever finds it, becomes its current one.
class LocalSearch {
 public:
  LocalSearch(const Neighbourhood& neighbourhood, const Board& board, std::uint64_t seed)
      : neighbourhood_(neighbourhood), board_(board), draws_(seed) {}

  /// Returns the next candidate to try, not taken; nothing while it must wait for a report, or if
  /// it found nothing new around the current one.
  std::optional<std::size_t> next();
  /// To be called after the board knows of it.
  void reported(std::size_t candidate);

 private:
  void move_to(std::size_t candidate);
  std::optional<std::size_t> next_neighbour();
  std::optional<std::size_t> begin_descent();
  void end_descent();
  void fruitless();

  const Neighbourhood& neighbourhood_;
  const Board& board_;
  RandomDraws draws_;
  std::optional<std::size_t> home_;     ///< the best optimum of this chain
  std::optional<std::size_t> current_;  ///< the descent's present candidate
  std::optional<std::size_t> start_;    ///< of the next descent, not reported yet
  std::deque<std::size_t> queue_;       ///< neighbours of `current_` to look at
  std::vector<std::size_t> waiting_;    ///< neighbours of `current_` handed out
  int fruitless_ = 0;                   ///< descents since the last gain
};

}  // namespace kernwright::detail
