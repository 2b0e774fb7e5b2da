#pragma once

#include <span>
#include <vector>

#include "model/result/evidence.h"

namespace kernwright {

/// Where the samples come from. Little is known about the noise of rounds. The noise of blocks
/// comes from the clock and is the same for all finalists, so that differences are symmetric. It is
/// large, and there are few blocks.
enum class Pairing { rounds, blocks };

struct PairedInterval {
  Slowdown slowdown;
  bool known = false;  ///< there were rounds enough for the interval; else it is the whole range
};

/// How much slower a finalist is than another, from the logarithms of their times. Entries i of
/// both were taken in the same round; what one of them has more is not used, and neither is empty.
///
/// The estimate is the median of the differences. Of rounds the interval is that of order
/// statistics, which assumes nothing about their distribution. Of blocks it is that of the means of
/// all pairs by Wilcoxon's signed ranks, which assumes symmetry and needs fewer samples. Where
/// successive differences correlate, they count as fewer and the interval is wider. See Gibbons and
/// Chakraborti, "Nonparametric Statistical Inference", chapter 5.
PairedInterval paired_interval(std::span<const double> logs, std::span<const double> other,
                               Pairing pairing = Pairing::rounds);

/// The logarithms of the samples of rounds that count.
std::vector<double> log_times(std::span<const double> samples_us,
                              std::span<const int> dropped = {});

}  // namespace kernwright
