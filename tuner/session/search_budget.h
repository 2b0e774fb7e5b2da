#pragma once

#include "tuner/finals/race.h"

namespace kernwright {

/// How a search shares out its seconds. A fifth is kept for the race, at most 4 s below 60 s, and
/// 8 % for finalists to run alone, at most 0.8 s; what of that would end later than 10 % beyond the
/// budget is not begun. A race takes more where screening left it, but not the fifth, at most 2 s,
/// that short blocks may need. From 60 s on there is time for long power blocks, which have no such
/// bound.
class SearchBudget {
 public:
  explicit SearchBudget(double seconds) : seconds_(seconds) {}

  /// For waiting until the device is steady, at most.
  double settle_seconds() const;
  /// Whether it is time for the finals so many seconds after the start. A search that has hardly
  /// looked (see `hardly_looked`) goes on into the first half of what is kept for them: there are
  /// few to race.
  bool screened(double elapsed, bool hardly_looked) const {
    const double reserve = race_reserve() + alone_reserve();
    return elapsed + (hardly_looked ? reserve / 2 : reserve) >= seconds_;
  }
  /// Time limits of a race that begins then; `started` is the start on the race's clock.
  void limit(RaceOptions& race, double started, double elapsed) const;

 private:
  bool long_blocks() const;
  double race_reserve() const;
  double alone_reserve() const;

  double seconds_;
};

}  // namespace kernwright
