#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include <kernwright/result.h>

namespace kernwright {

/// By step of a chain: whether it starts before its predecessor has ended.
using EarlySteps = std::vector<bool>;

/// Which of the steps that can start early gain by it. One that comes too early takes room and
/// memory from the one that still runs, so this is found by trying: steps of one `group`, as those
/// of one kernel are, start early together or not at all. Goes from all or none, whichever is
/// faster, to what no single group improves. `faster(a, b)`: whether the chain is faster with `a`;
/// its errors are passed on.
Result<EarlySteps> choose_early_steps(
    const EarlySteps& can, std::span<const std::size_t> groups,
    const std::function<Result<bool>(const EarlySteps&, const EarlySteps&)>& faster);

}  // namespace kernwright
