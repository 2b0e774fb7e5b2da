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

/// A candidate list for one problem: every valid configuration of every template that applies, with
/// predictions. Of a template with more than 400,000 points that many are looked at, and of those
/// that obey its rules 20,000 are kept, evenly spread and the same each time; a note says so. This
/// takes at most seconds, however large a space is. Errors: `not_found` where no template gives a
/// candidate, with each template's reason.
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

/// In how many parameters a candidate is not its template's default.
int distance_from_default(const Candidate& candidate);

/// The search for one problem on one device, see `run_search`: enumerates the candidates, compiles
/// them on the pool, and returns the record of the winner with its evidence. Artifacts of all
/// finalists are put into `artifacts`.
class TuningSession {
 public:
  TuningSession(const Catalog& catalog, const Operation& operation, Problem normalized,
                const DeviceProfile& profile, RecordKey key, RecordEnvironment environment,
                CompilePool& pool, const ArtifactStore& artifacts);

  /// Has the pool compile what a search measures first, the default and the cost model's first
  /// choices, one per thread, for while the runner opens. The search finds them where the pool's
  /// compiler keeps what it compiles in `artifacts`. Errors: as `enumerate_candidates`.
  Result<void> compile_first_choices();

  /// Errors: as `enumerate_candidates`; no candidate passed (naming the commonest outcome); the
  /// device was lost.
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

/// The cost model does not tell candidates closer than this apart, as a share.
inline constexpr double kModelDoubt = 0.03;

/// The same answer without a device: ranks the candidates by the cost model, compiles the first
/// `budget.trials`, drops what fails or spills, and returns a record of grade `predicted` with at
/// most 7 runners-up, fastest first. The default, which was chosen by hand, is the winner where
/// nobody is predicted more than `kModelDoubt` faster. The winner is compiled first; when
/// `budget.seconds` are over no further compile begins. Where none of the first compiles it goes on
/// down the list until one does. What `banned` names, by the candidate's id, is not looked at.
Result<TuningResult> predict_record(const Catalog& catalog, const Operation& operation,
                                    const Problem& normalized, const DeviceProfile& profile,
                                    RecordKey key, RecordEnvironment environment, CompilePool& pool,
                                    const ArtifactStore& artifacts, const TuningBudget& budget,
                                    const std::map<std::string, Override>& banned = {});

/// Whether the winner of a prediction is the default although another is predicted faster, by less
/// than the cost model can tell.
bool default_kept(const TuningRecord& record);

}  // namespace kernwright
