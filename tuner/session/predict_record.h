#pragma once

#include <map>
#include <string>

#include "cache/records/override.h"
#include "tuner/search/search.h"
#include "tuner/session/tuning_input.h"
#include <kernwright/result.h>

namespace kernwright {

/// Makes a record of grade `predicted`, without a device.
///
/// It ranks the candidates by the cost model, compiles the first `budget.trials` of them, and drops
/// candidates that fail or spill. The winner is compiled first. No compile begins once
/// `budget.seconds` are over. If none of the first candidates compiles, it goes on down the list
/// until one does. Candidates whose ids `banned` names are not looked at.
///
/// The record has the fastest first, with at most `kMostRunnersUp` runners-up. The winner is the
/// default, which was chosen by hand, unless some candidate is predicted to be faster by more than
/// `kModelDoubt`. Of one trial, a candidate whose bits are kept goes before what is faster by no
/// more than that.
Result<TuningResult> predict_record(const TuningInput& input, const TuningBudget& budget,
                                    const std::map<std::string, Override>& banned = {});

}  // namespace kernwright
