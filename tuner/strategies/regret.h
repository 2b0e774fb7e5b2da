#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace kernwright {

/// What a search knows when it ends.
struct SearchOutlook {
  /// How a candidate ended: its time in microseconds, or none where it failed.
  struct Result {
    std::size_t candidate = 0;
    std::optional<double> us;
  };

  double best_us = 0;
  double roofline_us = 0;                ///< no candidate is faster; 0 where that is not known
  std::span<const double> predicted_us;  ///< of all candidates
  std::span<const Result> results;       ///< each candidate at most once
  std::optional<double> optimistic_us;   ///< `SearchStrategy::optimistic_us`
};

/// How much faster than the best a candidate that was not looked at may be, as a share: 0.02 is
/// 2 %. By what the cost model says of those: its predictions, moved by the median error that it
/// made on what was measured, are taken to err as widely as there, and independently of each other;
/// then the fastest of them is as likely faster as slower than this. Few results say little of how
/// widely it errs, so the spread that is usual counts as much as 8 of them. From 64 results on the
/// strategy's own model, where it has one, knows better and is believed alone. 0 where nothing is
/// left.
double regret_estimate(const SearchOutlook& outlook);

}  // namespace kernwright
