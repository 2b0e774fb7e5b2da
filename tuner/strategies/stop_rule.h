#pragma once

#include <limits>
#include <optional>
#include <string_view>

namespace kernwright {

/// When a search has found what it is going to find. Fed with every result in the order they come
/// in; the budget is the caller's to watch.
class StopRule {
 public:
  /// `seconds`: the budget, by which patience grows. `roofline_us`: no candidate is faster; 0 where
  /// that is not known.
  StopRule(double seconds, double roofline_us);

  /// A candidate that ran in `us`; one that failed with no time at all.
  void add(std::optional<double> us);

  /// "roofline": within 3 % of what the device can do. "no_improvement": none of 0.5 % in the last
  /// `patience()` results, and the strategy's optimistic estimate of what it has not seen is not
  /// 1 % better (a strategy without a model has none to object with). Empty: go on.
  std::string_view reason(std::optional<double> optimistic_us) const;

  /// 128 results, 256 from 120 s. After 48, as short searches are often told to stop, the ten large
  /// matrix products were left 1 to 6 % short on an H200, with half of their 10 s unused.
  int patience() const { return patience_; }

 private:
  double roofline_us_;
  int patience_;
  int results_ = 0;
  int last_gain_ = 0;  ///< number of the result that improved last
  double best_us_ = std::numeric_limits<double>::infinity();
  double marked_us_ = std::numeric_limits<double>::infinity();  ///< the best at that time
};

}  // namespace kernwright
