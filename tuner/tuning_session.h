#pragma once

#include <map>
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
/// predictions. Of a template with more than 400,000 points that many are looked at, evenly spread
/// and the same each time, and a note says so. Errors: `not_found` where no template gives a
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
/// finalists are put into `artifacts`. Errors: no candidate passed (naming the commonest outcome),
/// or the device was lost.
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
/// `compile_count` of 1 it goes down the list until one compiles. What `banned` names, by the
/// candidate's id, is not looked at.
Result<TuningResult> predict_record(const Catalog& catalog, const Operation& operation,
                                    const Problem& normalized, const DeviceProfile& profile,
                                    RecordKey key, RecordEnvironment environment, CompilePool& pool,
                                    const ArtifactStore& artifacts, int compile_count,
                                    const std::map<std::string, Override>& banned = {});

}  // namespace kernwright
