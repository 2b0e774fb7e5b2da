#pragma once

#include <span>
#include <vector>

#include "model/result/evidence.h"

namespace kernwright {

/// The source of the samples. Little is known about the noise of rounds. The noise of blocks comes
/// from the clock and is the same for all finalists, so that differences are symmetric. It is
/// large, and there are few blocks.
enum class Pairing { rounds, blocks };

struct PairedInterval {
  Slowdown slowdown;
  bool known = false;  ///< there were rounds enough for the interval; else it is the whole range
};

/// Returns how much slower a finalist is than another, from the logarithms of their times. Entries
/// i of both were taken in the same round; the surplus of the longer list is not used, and neither
/// is empty.
///
/// The estimate is the median of the differences. For rounds the interval comes from order
/// statistics, which assume nothing about the distribution. For blocks it comes from the means of
/// all pairs by Wilcoxon's signed ranks, which assumes symmetry and needs fewer samples. If
/// successive differences correlate, they count as fewer and the interval is wider. See Gibbons and
/// Chakraborti, "Nonparametric Statistical Inference", chapter 5.
PairedInterval paired_interval(std::span<const double> logs, std::span<const double> other,
                               Pairing pairing = Pairing::rounds);

/// The logarithms of the samples of rounds that count.
std::vector<double> log_times(std::span<const double> samples_us,
                              std::span<const int> dropped = {});

}  // namespace kernwright
