#pragma once

#include "tuner/finals/race.h"

namespace kernwright {

/// Divides the seconds of a search. The constants are in `search_budget.cpp`.
///
/// - `kRaceShare` is kept for the race, at most `kMostRaceSeconds` in budgets below `kLongSeconds`.
/// - `kAloneShare` is kept for finalists to run alone, at most `kMostAloneSeconds`. A part that
///   would end later than `kOverrun` beyond the budget is not begun.
/// - A race takes more if screening left it time, but not the share that short power blocks may
///   need (`kBlocksShare`, `kMostBlocksSeconds`).
/// - From `kLongSeconds` on there is time for long power blocks, which no limit stops.
class SearchBudget {
 public:
  explicit SearchBudget(double seconds) : seconds_(seconds) {}

  /// The most seconds to wait until the device is steady.
  double settle_seconds() const;
  /// Returns whether it is time for the finals, `elapsed` seconds after the start. A search that
  /// has hardly looked (see `hardly_looked`) goes on into the first half of the time that is kept
  /// for them, because few candidates will race.
  bool screened(double elapsed, bool hardly_looked) const {
    const double reserve = race_reserve() + alone_reserve();
    return elapsed + (hardly_looked ? reserve / 2 : reserve) >= seconds_;
  }
  /// Sets the time limits of a race that begins `elapsed` seconds after the start. `started` is the
  /// start of the search on the race's clock.
  void limit(RaceOptions& race, double started, double elapsed) const;

 private:
  bool long_blocks() const;
  double race_reserve() const;
  double alone_reserve() const;

  double seconds_;
};

}  // namespace kernwright
