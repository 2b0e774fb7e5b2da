#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cache/artifact_store.h"
#include "cache/override.h"
#include "cache/record.h"
#include "compile/compile_pool.h"
#include "model/catalog.h"
#include "tuner/runner.h"
#include "tuner/search.h"
#include <kernwright/result.h>

namespace kernwright {

/// The candidates for one problem: every valid configuration of every template that applies, with
/// predictions. Of a template with more than `kMaxPoints` points that many are looked at. Of the
/// points that obey the rules at most `kMaxCandidates` are kept. Both are evenly spread and the
/// same each time, and a note says so. So listing takes at most seconds, however large a space is.
/// Errors: `not_found` where no template gives a candidate, with the reason of each template.
struct CandidateList {
  std::vector<Candidate> candidates;
  std::vector<double> predicted_us;
  std::size_t default_index = 0;  ///< the fastest predicted of those nearest to their default
  int rejected = 0;
  std::vector<int> group_of;       ///< an ordinal per shared compile, see SearchSpace
  std::vector<std::string> notes;  ///< why templates do not apply; what was only sampled
};
Result<CandidateList> enumerate_candidates(const Catalog& catalog, const Operation& operation,
                                           const Problem& normalized, const DeviceProfile& profile);

/// The number of parameters in which a candidate differs from its template's default.
int distance_from_default(const Candidate& candidate);

/// The search for one problem on one device, see `run_search`: enumerates the candidates, compiles
/// them on the pool, and returns the record of the winner with its evidence. Artifacts of all
/// finalists are put into `artifacts`.
class TuningSession {
 public:
  TuningSession(const Catalog& catalog, const Operation& operation, Problem normalized,
                const DeviceProfile& profile, RecordKey key, RecordEnvironment environment,
                CompilePool& pool, const ArtifactStore& artifacts);

  /// Has the pool compile what a search measures first, while the runner opens: the default and the
  /// cost model's first choices, one per thread. The search finds them if the pool's compiler keeps
  /// what it compiles in `artifacts`. Errors: those of `enumerate_candidates`.
  Result<void> compile_first_choices();

  /// Runs the search. Errors: those of `enumerate_candidates`; that no candidate passed, which
  /// names the commonest outcome; that the device was lost.
  Result<TuningResult> run(Runner& runner, TuningOptions options);

 private:
  Result<void> enumerate();

  const Catalog& catalog_;
  const Operation& operation_;
  Problem problem_;
  const DeviceProfile& profile_;
  RecordKey key_;
  RecordEnvironment environment_;
  CompilePool& pool_;
  const ArtifactStore& artifacts_;
  std::optional<CandidateList> list_;
};

/// The cost model does not tell apart candidates that are closer than this, as a share.
inline constexpr double kModelDoubt = 0.03;

/// Makes a record of grade `predicted`, without a device.
///
/// It ranks the candidates by the cost model, compiles the first `budget.trials` of them, and drops
/// what fails or spills. The winner is compiled first. No compile begins once `budget.seconds` are
/// over. Where none of the first candidates compiles, it goes on down the list until one does.
/// Candidates whose ids `banned` names are not looked at.
///
/// The record has the fastest first, with at most `kMostRunnersUp` runners-up. The winner is the
/// default, which was chosen by hand, unless some candidate is predicted to be faster by more than
/// `kModelDoubt`.
Result<TuningResult> predict_record(const Catalog& catalog, const Operation& operation,
                                    const Problem& normalized, const DeviceProfile& profile,
                                    RecordKey key, RecordEnvironment environment, CompilePool& pool,
                                    const ArtifactStore& artifacts, const TuningBudget& budget,
                                    const std::map<std::string, Override>& banned = {});

/// Whether the winner of a prediction is the default although another candidate is predicted to be
/// faster, by less than the cost model can tell.
bool default_kept(const TuningRecord& record);

}  // namespace kernwright
