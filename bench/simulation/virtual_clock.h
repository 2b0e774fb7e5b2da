#pragma once

#include <algorithm>

namespace kernwright {

/// A clock that moves only when time is spent on it, so that budgets in seconds are deterministic
/// in tests. Runner, compile queue and session of one simulation share one clock.
class VirtualClock {
 public:
  double seconds() const { return seconds_; }
  void advance(double seconds) { seconds_ += seconds; }
  /// Never goes back.
  void advance_to(double seconds) { seconds_ = std::max(seconds_, seconds); }

 private:
  double seconds_ = 0;
};

}  // namespace kernwright
