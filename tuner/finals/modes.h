#pragma once

#include <span>
#include <vector>

namespace kernwright {

/// Two groups of samples that are closer than this are one.
inline constexpr double kModeGap = 0.03;

/// The logarithms of a finalist's times by which it is judged.
struct SlowMode {
  std::vector<double> logs;
  bool bimodal = false;  ///< its samples fall into two groups more than `kModeGap` apart
};

/// Finds out whether the samples of a finalist fall into two groups. If they do, a sample of the
/// faster group counts as if it had been slow. Groups are sought in the times relative to `others`,
/// the other finalists and the probe kernels of the same rounds, so that a slowdown of all of them
/// makes no group. Members of `others` with fewer rounds than the finalist do not count.
SlowMode slow_mode(std::span<const double> logs, std::span<const std::span<const double>> others);

}  // namespace kernwright
