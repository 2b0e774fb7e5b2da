#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "tuner/strategies/search_strategy.h"

namespace kernwright::detail {

/// The search's knowledge of its candidates: which were handed out, and how those reported came
/// out.
class Board {
 public:
  explicit Board(const SearchSpace& space);

  std::size_t size() const { return state_.size(); }
  /// Handed out or measured; the default counts as handed out from the start.
  bool taken(std::size_t i) const { return state_[i] != State::open; }
  bool reported(std::size_t i) const { return ok(i) || failed(i); }
  bool ok(std::size_t i) const { return state_[i] == State::ok; }
  bool failed(std::size_t i) const { return state_[i] == State::failed; }
  /// Logarithm of its time in microseconds; of those that are ok.
  double log_us(std::size_t i) const { return log_us_[i]; }
  /// The least `log_us`; infinite while none is ok.
  double best_log_us() const { return best_log_us_; }
  /// In the order of the reports.
  const std::vector<std::size_t>& results() const { return results_; }
  std::size_t open() const { return open_; }

  void take(std::size_t i);
  /// False for what was reported before, which changes nothing.
  bool report(std::size_t i, const Trial& trial);

 private:
  enum class State : std::uint8_t { open, taken, ok, failed };

  std::vector<State> state_;
  std::vector<double> log_us_;
  std::vector<std::size_t> results_;
  std::size_t open_ = 0;
  double best_log_us_ = std::numeric_limits<double>::infinity();
};

}  // namespace kernwright::detail
