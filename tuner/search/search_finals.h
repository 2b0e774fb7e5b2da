#pragma once

#include <span>
#include <vector>

#include "model/candidate/candidate.h"
#include "tuner/finals/race.h"
#include "tuner/search/survivors.h"
#include "tuner/search/trial_book.h"

namespace kernwright {

struct FinalsResult {
  RaceResult race;  ///< of the survivors as they are left
  /// Entry i is of finalist i of the race: microseconds per unit of an empty kernel.
  std::vector<double> launch_gaps_us;
  Result<LaunchTimes> launch_paths = LaunchTimes{};  ///< of the winner, or why they are not known
};

/// Lets the survivors race, with the default and the incumbent among them. Survivors that do not
/// race are dropped from `survivors`, and all are unloaded at the end. The findings go into the
/// trials of the finalists: their samples, and the proof that they are right. Errors: the runner's
/// own; the device was lost.
Result<FinalsResult> run_finals(Runner& runner, std::span<const Candidate> candidates,
                                const RaceOptions& options, Survivors& survivors, TrialBook& book);

}  // namespace kernwright
