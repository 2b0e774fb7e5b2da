#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "model/result/measurement.h"

namespace kernwright {

/// The samples of one rung of a race, taken in interleaved rounds. A survivor that takes part to
/// the end has one sample per round. One that dropped out has the samples of the first rounds.
struct RoundSamples {
  std::map<std::size_t, std::vector<Sample>> of;  ///< by survivor
  std::vector<Sample> sm_probe;                   ///< one per round, as the next
  std::vector<Sample> dram_probe;
  std::vector<int> dropped;  ///< rounds that do not count
  int looked_at = 0;         ///< rounds of which it is known whether they count

  int count() const { return static_cast<int>(sm_probe.size()); }
  /// Looks at the rounds since the last look, and drops those in which something from outside
  /// slowed everybody down. In these a probe kernel was slow while the clock was low, or it was
  /// slow far beyond its noise. A candidate that is slow while the probes are not is slow by
  /// itself, and its rounds stay.
  void drop_disturbed();
  /// Returns whether more than a quarter of the rounds do not count.
  bool disturbed() const { return 4 * dropped.size() > sm_probe.size(); }
};

/// Returns for each of `survivors`, which have all rounds, the median of its log time relative to
/// the others', over the rounds that count, or over all rounds if none counts.
std::vector<double> relative_medians(const RoundSamples& samples,
                                     std::span<const std::size_t> survivors);

/// The median of a survivor's samples in rounds that count, in microseconds.
double median_us(const RoundSamples& samples, std::size_t survivor);

}  // namespace kernwright
