#pragma once

#include <span>

#include "tuner/candidates/candidate_list.h"
#include "tuner/candidates/warm_starts.h"
#include "tuner/strategies/search_strategy.h"

namespace kernwright {

/// Returns a strategy's view of a candidate list, which must outlive it.
///
/// `warm_starts`, best first, become the candidates that they name. One that is not valid here
/// becomes the nearest candidate, if that differs in at most `kMostDifferences` parameters.
SearchSpace make_search_space(const CandidateList& list, std::span<const Choice> warm_starts);

}  // namespace kernwright
