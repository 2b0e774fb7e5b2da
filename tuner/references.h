#pragma once

#include <array>
#include <deque>

#include "tuner/runner.h"

namespace kernwright {

/// How the device drifts, seen by the reference kernels that are sampled between candidates.
class References {
 public:
  void add(Runner::Id reference, double us);
  /// Forgets everything: a new process, or a device that has just settled.
  void reset() { series_ = {}; }

  /// Whether the latest samples of either reference lie further from its usual time than `share`.
  /// False before there is a usual time.
  bool off_by(double share) const;

  /// By how much everything is slower now, as ln(ratio): what both references agree on. Which of
  /// them a candidate follows is not known, so that what only one shows is not corrected for.
  double drift() const;

 private:
  using Series = std::deque<double>;  ///< logarithms, the latest last

  static double deviation(const Series& series);

  std::array<Series, 2> series_;
};

}  // namespace kernwright
