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
};

/// How much faster than the best measured candidate the best candidate that was not tried may be,
/// as a share: 0.02 is 2 %. It is 0 where every candidate was tried.
///
/// The estimate comes from the cost model. Its predictions of the untried candidates are corrected
/// by the median error that the model made on the measured ones, less `kStandardErrors` of it.
/// Their remaining errors are taken to be independent and as wide as the errors on the measured
/// candidates. The result is what the fastest of them exceeds once in ten times. A few results say
/// little about how wide the errors are, so the usual spread, `kUsualSpread`, weighs as much as
/// `kUsualCounts` results. Nothing is taken to be faster than the roofline.
double regret_estimate(const SearchOutlook& outlook);

}  // namespace kernwright
