#pragma once

#include <map>
#include <string>

#include "cache/records/override.h"
#include "cache/records/record.h"
#include "cache/stores/artifact_store.h"
#include "compile/compile_pool.h"
#include "model/catalog/catalog.h"
#include "tuner/session/search.h"
#include <kernwright/result.h>

namespace kernwright {

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
