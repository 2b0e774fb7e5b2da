#pragma once

#include <span>

#include "tuner/finals/race.h"

namespace kernwright {

/// Lets finalists run alone, to find out which of them meets the power limit.
///
/// Finalists that take turns share one clock. It follows the power that all of them draw on
/// average, and says nothing about the clock that each would have alone. So:
///
/// 1. Each finalist within reach of the best runs alone for a moment.
/// 2. If their clocks then differ, or are not known, the winner of the rounds and the best others
///    run in blocks, one after another, several times, in the order A B C C B A.
/// 3. If their clocks differ in the blocks too, by the ratios within a pass, the race is
///    `power_limited` and the blocks decide. Their samples are appended to the samples of the
///    rounds.
///
/// Short blocks, which run if there is no time for long ones, leave trust B, and so do blocks that
/// ended early. Further short blocks follow while they leave the verdict open and there is time. A
/// finalist that fails leaves the finals. Then, or if the measuring process begins anew, the rounds
/// decide, or the blocks before. Errors: the runner's own.
Result<void> race_alone(Runner& runner, std::span<const Survivor> survivors,
                        const RaceOptions& options, RaceResult& result);

}  // namespace kernwright
