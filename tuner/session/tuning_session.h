#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "compile/compile_pool.h"
#include "tuner/candidates/candidate_list.h"
#include "tuner/runner.h"
#include "tuner/search/search.h"
#include "tuner/session/tuning_input.h"
#include <kernwright/result.h>

namespace kernwright {

/// The search for one problem on one device, see `run_search`: enumerates the candidates, compiles
/// them on the pool, and returns the whole record of the winner.
class TuningSession {
 public:
  explicit TuningSession(TuningInput input) : in_(std::move(input)) {}

  /// Has the pool compile the first candidates of a search while the runner opens: the default and
  /// the cost model's first choices, one per thread. The search finds them if the pool has a cache.
  /// Errors: the errors of `enumerate_candidates`.
  Result<void> compile_first_choices();

  /// Runs the search. Errors: the errors of `enumerate_candidates`; no candidate passed, with the
  /// commonest outcome; the device was lost.
  Result<TuningResult> run(Runner& runner, TuningOptions options, EarlierTunings earlier = {});

 private:
  Result<void> enumerate(std::size_t broken_habits);

  const TuningInput in_;
  std::optional<CandidateList> list_;
  std::vector<Build> first_choices_;  ///< until the search asks again
};

}  // namespace kernwright
