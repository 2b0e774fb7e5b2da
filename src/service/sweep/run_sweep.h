#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "service/sweep/sweep_problem.h"
#include <kernwright/problem.h>

namespace kernwright {

/// Tunes one problem of a sweep. `later` are the problems that come behind it.
using SweepTuner = std::function<SweepResult(const Problem&, std::span<const Problem> later)>;

/// Distributes the problems over `tuners`, of which there is one for each GPU, at least one. Each
/// tunes one at a time, in a thread of its own. After each problem calls `done`, one call at a
/// time, with its index and the seconds that it took. Returns the results, in the order of the
/// problems.
std::vector<SweepResult> run_sweep(
    std::span<const Problem> normalized, std::span<const SweepTuner> tuners,
    const std::function<void(std::size_t, const SweepResult&, double seconds)>& done,
    const std::function<void(std::string_view)>& say);

}  // namespace kernwright
