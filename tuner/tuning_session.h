#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cache/artifact_store.h"
#include "cache/record.h"
#include "compile/compile_pool.h"
#include "model/catalog.h"
#include "tuner/runner.h"
#include <kernwright/result.h>

namespace kernwright {

struct TuningBudget {
  double seconds = 30;
  int trials = 1 << 30;
};

/// What the session tells whoever watches it. `best_us` is 0 before the first measurement.
struct TuningProgress {
  int candidates = 0;
  int compiled = 0;
  int measured = 0;
  int failed = 0;
  double best_us = 0;
  std::string best;
  double seconds = 0;
};

/// A configuration that is known to be good somewhere.
struct SeedConfiguration {
  std::string kernel_template;
  Configuration configuration;
  bool other_sku = false;
};

struct TuningOptions {
  TuningBudget budget;
  std::string strategy = "ranked";
  std::uint64_t seed = 1;
  int finalists = 8;
  int final_rounds = 31;
  /// The winner so far; only what clearly beats it in this session replaces it.
  std::optional<SeedConfiguration> incumbent;
  std::vector<SeedConfiguration> seeds;  ///< winners elsewhere, best first
  std::filesystem::path trial_log;
  std::function<void(const TuningProgress&)> progress;
  std::function<double()> clock_seconds;  ///< monotonic; empty: the steady clock
};

/// Where the wall time of a session went.
struct TimeShares {
  double wall_seconds = 0;
  double setup_seconds = 0;    ///< enumeration, buffers, reference
  double measure_seconds = 0;  ///< the device checked or timed candidates
  double idle_seconds = 0;     ///< the measuring thread waited for a compile
  double compile_seconds = 0;  ///< summed over the pool's threads
  int compile_threads = 0;
};

struct TuningResult {
  TuningRecord record;
  std::vector<Trial> trials;
  TimeShares shares;
  int rejected = 0;  ///< configurations that are no candidates
  /// What did not apply, was only sampled, or could not be kept (an artifact, the trial log).
  std::vector<std::string> notes;
};

/// A candidate list for one problem: every valid configuration of every template that applies, with
/// predictions. Of a template with more than 200,000 points that many are looked at, evenly spread
/// and the same each time, and a note says so. Errors: `not_found` where no template gives a
/// candidate, with each template's reason.
struct CandidateList {
  std::vector<Candidate> candidates;
  std::vector<double> predicted_us;
  std::size_t default_index = 0;  ///< the applicable default configuration predicted fastest
  int rejected = 0;
  std::vector<int> group_of;       ///< an ordinal per shared compile, see SearchSpace
  std::vector<std::string> notes;  ///< why templates do not apply; what was only sampled
};
Result<CandidateList> enumerate_candidates(const Catalog& catalog, const Operation& operation,
                                           const Problem& normalized, const DeviceProfile& profile);

/// The search for one problem on one device: compiles ahead on the pool while this thread measures
/// whichever candidate is ready, checks each against the reference before timing it, measures the
/// finalists again interleaved, and returns the record of the winner with its evidence. Artifacts
/// of winner, runners-up and baseline are put into `artifacts`. The winner replaces the default
/// only where it beats it by more than the noise of both. Errors: no candidate passed (naming the
/// commonest outcome), or the device was lost.
class TuningSession {
 public:
  TuningSession(const Catalog& catalog, const Operation& operation, Problem normalized,
                const DeviceProfile& profile, RecordKey key, RecordEnvironment environment,
                CompilePool& pool, Runner& runner, const ArtifactStore& artifacts,
                TuningOptions options);

  Result<TuningResult> run();

 private:
  const Catalog& catalog_;
  const Operation& operation_;
  Problem problem_;
  const DeviceProfile& profile_;
  RecordKey key_;
  RecordEnvironment environment_;
  CompilePool& pool_;
  Runner& runner_;
  const ArtifactStore& artifacts_;
  TuningOptions options_;
};

/// The same answer without a device: ranks the candidates by the cost model, compiles the best
/// `compile_count`, drops what fails or spills, and returns a record of grade `predicted`. With a
/// `compile_count` of 1 it goes down the list until one compiles.
Result<TuningResult> predict_record(const Catalog& catalog, const Operation& operation,
                                    const Problem& normalized, const DeviceProfile& profile,
                                    RecordKey key, RecordEnvironment environment, CompilePool& pool,
                                    const ArtifactStore& artifacts, int compile_count);

}  // namespace kernwright
