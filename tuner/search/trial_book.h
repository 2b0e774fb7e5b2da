#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/result/trial.h"
#include "tuner/runner.h"
#include "tuner/search/search_clock.h"
#include "tuner/search/trial_log.h"
#include "tuner/strategies/regret.h"
#include "tuner/strategies/search_strategy.h"
#include <kernwright/result.h>

namespace kernwright {

/// The trials of a search in the order in which they ended, and counts of them. Each is dated and
/// logged, the strategy learns from it, and the caller hears of those that do not end well. A trial
/// that cannot be logged costs the log an entry, and the search a note.
class TrialBook {
 public:
  /// All of them outlive the book. `failed` may be empty.
  TrialBook(SearchStrategy& strategy, const Runner& runner, const SearchClock& clock, TrialLog& log,
            const std::function<void(const Trial&)>& failed)
      : strategy_(strategy), runner_(runner), clock_(clock), log_(log), failed_to_(failed) {}

  /// A candidate that is not tried, since it is known to fail.
  void skip(std::size_t candidate, Trial trial);
  /// Adds a candidate that was tried. If it passed, the strategy learns `samples_us`, which are
  /// corrected for the device's drift. Errors: the device was lost.
  Result<void> add(std::size_t candidate, Trial trial, std::span<const double> samples_us);
  /// Marks a trial as failed that had passed; the text in `where` precedes the detail. Errors: the
  /// device was lost.
  Result<void> fail(std::size_t trial, const Runner::Step& step, std::string_view where);
  /// Updates a trial that reached the finals: its samples become the samples of the finals, and
  /// `later` adds to its proof.
  void add_finals(std::size_t trial, std::span<const Sample> samples, const CheckReport& later);

  void note(std::string message);

  const std::vector<Trial>& trials() const { return trials_; }
  /// Returns the results of all candidates that were tried.
  const std::vector<SearchOutlook::Result>& results() const { return results_; }
  int measured() const { return measured_; }
  int failed() const { return failed_; }
  int skipped() const { return skipped_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void log(const Trial& trial);
  Result<void> still_there(const Trial& trial) const;

  SearchStrategy& strategy_;
  const Runner& runner_;
  const SearchClock& clock_;
  TrialLog& log_;
  const std::function<void(const Trial&)>& failed_to_;
  std::vector<Trial> trials_;
  std::vector<SearchOutlook::Result> results_;
  int measured_ = 0;
  int failed_ = 0;
  int skipped_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace kernwright
