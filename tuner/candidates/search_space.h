#pragma once

#include <span>

#include "tuner/candidates/candidate_list.h"
#include "tuner/candidates/seeds.h"
#include "tuner/strategies/search_strategy.h"

namespace kernwright {

/// What a strategy sees of a candidate list, which must outlive it. Features: every value that the
/// manifest's expressions saw, the predicted time, and what the launch asks of the device (blocks,
/// threads, share of the shared memory, waves, the share of the last wave that idles); NaN where
/// a template has no such value. `seeds`, best first, become the candidates they name; one that is
/// not valid here becomes the candidate nearest to it, if that differs in at most two parameters.
SearchSpace make_search_space(const CandidateList& list, const DeviceProfile& profile,
                              std::span<const SeedConfiguration> seeds);

}  // namespace kernwright
