#pragma once

#include <algorithm>

namespace kernwright {

/// Time that passes only when somebody spends it, so that budgets in seconds are testable and
/// deterministic. Runner, compile queue and session of one simulation share one.
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
