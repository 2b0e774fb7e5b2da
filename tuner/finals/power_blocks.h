#pragma once

#include <span>

#include "tuner/finals/race.h"

namespace kernwright {

/// Finalists that take turns share one clock, which follows what all of them draw on average; it
/// says nothing of what each would have alone. So those within reach of the best run alone for a
/// moment, and where their clocks then differ (or are not known) the best three by these times run
/// one after another, in the order A B C C B A, several times. Where the clocks differ there too,
/// by their ratios within a pass, the race is `power_limited` and these blocks decide; they are
/// appended to the samples. Blocks that are short, because there was no time for long ones, or that
/// ended early, leave trust B; there are more of them while they leave the verdict open and there
/// is time. Who fails leaves the finals; then, or where the process begins anew, the rounds decide,
/// or the blocks before. Errors: the runner's own.
Result<void> race_alone(Runner& runner, std::span<const Contender> contenders,
                        const RaceOptions& options, RaceResult& result);

}  // namespace kernwright
