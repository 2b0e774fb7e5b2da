#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/records/record.h"
#include "compile/compile_request.h"
#include "model/candidate/candidate.h"
#include "tuner/finals/survivor.h"
#include "tuner/runner.h"
#include "tuner/search/compile_queue.h"
#include "tuner/search/trial_log.h"
#include "tuner/strategies/search_strategy.h"
#include <kernwright/result.h>

namespace kernwright {

struct TuningBudget {
  double seconds = 30;
  int trials = 1 << 30;  ///< candidates to measure; for a prediction, candidates to compile
  /// Seconds that opening the GPU and the problem took before the session began. They count against
  /// `seconds`, but only up to the share `kOpeningShare` of it (`tuning_session.cpp`).
  double opening_seconds = 0;
};

/// Progress that a session reports to its caller while it runs. `best_us` is 0 before the first
/// measurement.
struct TuningProgress {
  int candidates = 0;
  int compiled = 0;
  int measured = 0;
  int failed = 0;
  double best_us = 0;
  std::string best = {};
  double seconds = 0;
};

/// A candidate that failed under the same conditions before.
struct KnownFailure {
  std::string id;  ///< of the candidate
  Outcome outcome = Outcome::rejected;
};

/// The knowledge of a cache from earlier tunings of a problem, and for later ones.
struct EarlierTunings {
  /// The winner so far; only what clearly beats it in this session replaces it.
  std::optional<Choice> incumbent = {};
  std::vector<Choice> warm_starts = {};     ///< winners elsewhere, best first
  std::vector<KnownFailure> failures = {};  ///< not tried again
  /// Gets every trial that does not end well, as soon as it ends. A session that ends in an error,
  /// or is killed, has no result that could name these trials.
  std::function<void(const Trial&)> failed = {};
};

/// A tuning as its caller wants it.
struct TuningOptions {
  TuningBudget budget = {};
  std::string strategy = "portfolio";
  std::uint64_t random_seed = 1;
  int finalists = 8;
  int final_rounds = 256;  ///< at most
  std::filesystem::path trial_log = {};
  std::function<void(const TuningProgress&)> progress = {};
  /// Called in front of the finals. The search compiles nothing from then on.
  std::function<void()> screened = {};
  std::function<double()> clock_seconds = {};  ///< monotonic; empty: the steady clock
};

/// Wall time of a session by activity. It is the sum of setup, settling, measuring, filling and
/// finals, and of the little that choosing and logging take.
struct TimeShares {
  double wall_seconds = 0;
  double setup_seconds = 0;    ///< enumeration, audit
  double settle_seconds = 0;   ///< probes until the device was steady
  double measure_seconds = 0;  ///< candidates were loaded, checked or screened
  double filler_seconds = 0;   ///< no compile was ready: more samples of the best so far
  double finals_seconds = 0;   ///< the race of the survivors
  double compile_seconds = 0;  ///< summed over the pool's threads
  int compile_threads = 0;
  DeviceUse device;  ///< from the first sample on: when it had work, whatever for
};

struct TuningResult {
  TuningRecord record;
  std::shared_ptr<const CompiledKernel> kernel;  ///< the winner's
  std::vector<Trial> trials;
  TimeShares shares;
  int rejected = 0;                 ///< configurations that are not candidates
  std::filesystem::path file = {};  ///< of the record; empty before it is stored
  /// Why another process will not find the record with its winner's artifact; empty: it will.
  /// Whatever stores the record sets this and `file`.
  std::string unstored;
  /// Options that did not apply, parts that were only sampled, and results that could not be kept
  /// (an artifact, the trial log).
  std::vector<std::string> notes;
};

/// Inputs of a search. All of them outlive the search.
struct SearchInput {
  /// Entry i is candidate i of `space`.
  std::span<const Candidate> candidates;
  const SearchSpace& space;
  const DeviceProfile& profile;
  SearchStrategy& strategy;
  CompileQueue& queue;
  Runner& runner;
  TrialLog& log;
  EarlierTunings earlier = {};
  std::string problem;     ///< named in errors
  int rejected = 0;        ///< configurations that are not candidates
  double roofline_us = 0;  ///< 0: not known
  double started = 0;      ///< on the options' clock: when the budget began to run
};

/// Searches for the fastest candidate and returns the record's evidence. The record lacks what the
/// search does not know (see `complete`).
///
/// It visits whichever candidate is compiled, the default first (`CandidateVisits`). Each candidate
/// is checked before it is timed, and two samples decide whether it may race. While no compile is
/// ready the device repeats the best so far.
///
/// A part of the budget is kept for the race (`SearchBudget`), which alone decides (see `race`).
/// The winner is not worse than the default, and the incumbent stays unless it is clearly beaten.
///
/// The options have a clock. Errors: that no candidate passed, which names the commonest outcome;
/// that the device was lost.
Result<TuningResult> run_search(const SearchInput& input, const TuningOptions& options);

}  // namespace kernwright
