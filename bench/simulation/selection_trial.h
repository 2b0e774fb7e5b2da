#pragma once

#include <cstddef>

#include "bench/simulation/simulated_runner.h"
#include "model/result/evidence.h"
#include <kernwright/result.h>

namespace kernwright {

struct SelectionOptions {
  SimulationOptions simulation;
  /// The best to be found: between others, or, if true, alone for long.
  bool power_limited = false;
  bool long_blocks = false;  ///< there is time for them
};

/// The choice of one simulated selection, compared with the right choice: the candidate with the
/// least true time among those that do not fail.
struct SelectionTrial {
  std::size_t winner = 0;  ///< a configuration of the space
  double regret = 0;       ///< how much slower it is than the right one: 0.02 is 2 %
  Verdict verdict = Verdict::unresolved;
  Trust trust = Trust::a;
  bool power_limited = false;
  int rounds = 0;   ///< of the finals
  int samples = 0;  ///< of candidates, screening and race together
  double seconds = 0;
  /// The regrets of choosing by the smallest minimum and by the smallest median of as many samples,
  /// which are taken of one candidate after another.
  double regret_of_min = 0;
  double regret_of_median = 0;
};

/// Screens all configurations of a space and races them under the noise, as a session does after
/// its search. Errors: the runner's and the race's; `not_found` if all candidates failed.
Result<SelectionTrial> run_selection_trial(const RecordedSpace& space,
                                           const BareCandidates& candidates,
                                           const SelectionOptions& options);

}  // namespace kernwright
