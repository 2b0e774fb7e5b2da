#include "tuner/strategies/regret.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "support/statistics.h"

namespace kernwright {
namespace {

/// The standard deviation of normal errors over the median of their sizes. The median is used since
/// the model is far off for some slow candidates, which say nothing of the fast ones.
constexpr double kSpreadOfMedian = 1.48;
/// The usual spread of measured over predicted times, as logarithms: it is between 0.05 and 0.23 on
/// the 18 spaces recorded on an H200 (`bench/results/h200`), 0.12 in the middle.
constexpr double kUsualSpread = 0.12;
constexpr double kUsualCounts = 8;  ///< results
/// The median error is known to its standard error alone, and so many of these count in favour of
/// what was not tried: with none of them 16 results cover the truth three times of four.
constexpr double kStandardErrors = 2;
/// So many candidates are expected to be faster than what is faster than all of them nine times of
/// ten: -ln 0.9.
constexpr double kRarelyFaster = 0.105;
constexpr int kHalvings = 40;

/// The chance that a normal deviate is below `z`.
double chance_below(double z) { return std::erfc(-z / std::numbers::sqrt2) / 2; }

/// Returns the logarithm of the time that every untried candidate exceeds nine times of ten;
/// `best_log` if that is faster.
double fastest_log(const SearchOutlook& outlook, double best_log) {
  const std::span<const double> predicted = outlook.predicted_us;
  // A model that says nothing of one candidate says nothing: all are alike then.
  const bool heard =
      std::all_of(predicted.begin(), predicted.end(), [](double us) { return us > 0; });
  const auto predicted_log = [&](std::size_t i) { return heard ? std::log(predicted[i]) : 0; };
  std::vector<bool> ended(predicted.size(), false);
  std::vector<double> errors;
  for (const SearchOutlook::Result& result : outlook.results) {
    ended[result.candidate] = true;
    if (result.us) errors.push_back(std::log(*result.us) - predicted_log(result.candidate));
  }
  if (errors.empty()) return best_log;
  const double middle_error = median(errors);
  std::vector<double> deviations;
  for (const double one : errors) deviations.push_back(std::abs(one - middle_error));
  const auto counts = static_cast<double>(errors.size());
  const double own_spread = kSpreadOfMedian * median(std::move(deviations));
  const double spread =
      std::sqrt((kUsualCounts * kUsualSpread * kUsualSpread + counts * own_spread * own_spread) /
                (kUsualCounts + counts));

  const double error = middle_error - kStandardErrors * spread / std::sqrt(counts);
  std::vector<double> expected;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    if (!ended[i]) expected.push_back(predicted_log(i) + error);
  }
  if (expected.empty()) return best_log;
  const auto faster_than = [&](double log) {
    double count = 0;
    for (const double one : expected) count += chance_below((log - one) / spread);
    return count;
  };
  if (faster_than(best_log) <= kRarelyFaster) return best_log;
  // Ten spreads below the least nobody is expected.
  double low =
      std::min(best_log, *std::min_element(expected.begin(), expected.end())) - 10 * spread;
  double high = best_log;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (faster_than(middle) > kRarelyFaster ? high : low) = middle;
  }
  return high;
}

}  // namespace

double regret_estimate(const SearchOutlook& outlook) {
  if (outlook.results.size() >= outlook.predicted_us.size()) return 0;
  const double best_log = std::log(outlook.best_us);
  double log = fastest_log(outlook, best_log);
  if (outlook.roofline_us > 0) log = std::max(log, std::log(outlook.roofline_us));
  return std::max(0.0, std::exp(best_log - log) - 1);
}

}  // namespace kernwright
