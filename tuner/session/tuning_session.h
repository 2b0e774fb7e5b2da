#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cache/records/record.h"
#include "cache/stores/artifact_store.h"
#include "compile/compile_pool.h"
#include "model/catalog/catalog.h"
#include "tuner/candidates/candidate_list.h"
#include "tuner/runner.h"
#include "tuner/search/search.h"
#include <kernwright/result.h>

namespace kernwright {

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

}  // namespace kernwright
