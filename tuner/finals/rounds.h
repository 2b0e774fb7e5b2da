#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "model/result/measurement.h"

namespace kernwright {

/// Samples of one rung of a race, taken in interleaved rounds. Who takes part to the end has one
/// sample per round, who dropped out those of the first rounds.
struct RoundSamples {
  std::map<std::size_t, std::vector<Sample>> of;  ///< by contender
  std::vector<Sample> sm_reference;               ///< one per round, as the next
  std::vector<Sample> dram_reference;
  std::vector<int> dropped;  ///< rounds that do not count
  int looked_at = 0;         ///< rounds of which it is known whether they count

  int count() const { return static_cast<int>(sm_reference.size()); }
  /// Drops those of the rounds since the last look in which something from outside slowed everybody
  /// down: a reference kernel was slow, and the clock low as well, or the reference slow far beyond
  /// its noise. A candidate that is slow while the references are not owes it to itself, and its
  /// rounds stay.
  void drop_disturbed();
  /// More than a quarter does not count.
  bool disturbed() const { return 4 * dropped.size() > sm_reference.size(); }
};

/// For each of `contenders`, which have all rounds: median over the rounds that count (over all,
/// where none does) of its log time relative to the others'.
std::vector<double> relative_medians(const RoundSamples& samples,
                                     std::span<const std::size_t> contenders);

/// Median of its samples in rounds that count, in microseconds.
double median_us(const RoundSamples& samples, std::size_t contender);

}  // namespace kernwright
