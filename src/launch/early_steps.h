#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include <kernwright/result.h>

namespace kernwright {

/// For each step of a chain, whether it starts before the previous step has ended.
using EarlySteps = std::vector<bool>;

/// Finds which of the steps that `can` start early gain by it. A step that starts too early takes
/// room and memory bandwidth from the one that still runs, so each has to be tried. Steps of one
/// group, such as those of one kernel, start early together or not at all. The search begins with
/// all groups or with none, whichever is faster, and ends when no change of a single group makes
/// the chain faster. `faster(a, b)` says whether the chain is faster with `a` than with `b`; its
/// errors are returned.
Result<EarlySteps> choose_early_steps(
    const EarlySteps& can, std::span<const std::size_t> groups,
    const std::function<Result<bool>(const EarlySteps&, const EarlySteps&)>& faster);

}  // namespace kernwright
