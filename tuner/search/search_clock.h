#pragma once

#include <functional>

namespace kernwright {

/// The clock of a search, and when its budget began to run.
struct SearchClock {
  std::function<double()> seconds;  ///< monotonic
  double started = 0;

  double elapsed() const { return seconds() - started; }
  /// Adds the seconds that `work` takes to `share`, and returns the result of `work`.
  template <typename Work>
  auto timed(double& share, Work work) const {
    const double before = seconds();
    auto result = work();
    share += seconds() - before;
    return result;
  }
};

}  // namespace kernwright
