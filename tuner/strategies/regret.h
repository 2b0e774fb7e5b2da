#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace kernwright {

/// A search's knowledge at its end.
struct SearchOutlook {
  /// The end of a candidate: its time in microseconds, or none if it failed.
  struct Result {
    std::size_t candidate = 0;
    std::optional<double> us;
  };

  double best_us = 0;
  double roofline_us = 0;                ///< no candidate is faster; 0 if not known
  std::span<const double> predicted_us;  ///< of all candidates
  std::span<const Result> results;       ///< each candidate at most once
};

/// Estimates how much faster than the best measured candidate the best untried candidate may be, as
/// a share: 0.02 is 2 %. It is 0 if every candidate was tried.
///
/// The estimate comes from the cost model. Its predictions of the untried candidates are corrected
/// by the median error that the model made on the measured ones, less `kStandardErrors` of it.
/// Their remaining errors are taken to be independent and as wide as the errors on the measured
/// candidates. The fastest of them exceeds the result once in ten times. A few results say little
/// about how wide the errors are, so the usual spread, `kUsualSpread`, weighs as much as
/// `kUsualCounts` results. Nothing is taken to be faster than the roofline.
double regret_estimate(const SearchOutlook& outlook);

}  // namespace kernwright
