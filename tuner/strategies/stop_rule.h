#pragma once

#include <limits>
#include <optional>
#include <string_view>

namespace kernwright {

/// Says when a search has found what it is going to find. It is told every result, in the order in
/// which they come in. The caller watches the budget.
class StopRule {
 public:
  /// `seconds` is the budget; a large one allows more patience. No candidate is faster than
  /// `roofline_us`, which is 0 if it is not known.
  StopRule(double seconds, double roofline_us);

  /// Tells of a candidate that ran in `us`, or of one that failed, with no time at all.
  void add(std::optional<double> us);

  /// Why to stop; empty: go on. "roofline": the best is as near to the roofline as `kRoofline`.
  /// "no_improvement": the last `patience()` results brought no gain of `kGain`.
  std::string_view reason() const;

  /// The number of results without a gain that end the search. With 48 of them, which is usual for
  /// short searches, the ten large matrix products were left 1 to 6 % short on an H200, with half
  /// of their 10 s unused.
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
