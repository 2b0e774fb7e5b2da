#include "tuner/strategies/board.h"

#include <algorithm>
#include <cmath>

namespace kernwright::detail {

Board::Board(const SearchSpace& space)
    : state_(space.predicted_us.size(), State::open),
      log_us_(space.predicted_us.size(), std::numeric_limits<double>::infinity()),
      open_(space.predicted_us.size()) {
  if (space.default_index < state_.size()) take(space.default_index);
}

void Board::take(std::size_t i) {
  if (taken(i)) return;
  state_[i] = State::taken;
  --open_;
}

bool Board::report(std::size_t i, const Trial& trial) {
  if (reported(i)) return false;
  take(i);
  results_.push_back(i);
  const double us = trial.outcome == Outcome::ok ? trial.measurement.median_us() : 0;
  if (!(us > 0) || !std::isfinite(us)) {
    state_[i] = State::failed;
    return true;
  }
  state_[i] = State::ok;
  log_us_[i] = std::log(us);
  best_log_us_ = std::min(best_log_us_, log_us_[i]);
  return true;
}

}  // namespace kernwright::detail
