#pragma once

#include <span>

#include "tuner/race.h"

namespace kernwright {

/// Interleaved finalists share one clock. Whether they would not have the same one alone: then
/// somebody meets the power limit, and the finals flatter who draws more.
bool power_limited(const RaceResult& result);

/// Runs the best three finalists one after another, each long enough for its own clock to settle,
/// four times in the order A B C C B A, and lets that decide. Appends to their samples. Who fails
/// leaves the finals; then, or where the process begins anew, the rounds decide. Errors: the
/// runner's own.
Result<void> race_in_blocks(Runner& runner, std::span<const Contender> contenders,
                            const RaceOptions& options, RaceResult& result);

}  // namespace kernwright
