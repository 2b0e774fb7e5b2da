#include "launch/early_steps.h"

#include <set>

#include "support/try.h"

namespace kernwright {
namespace {

/// Passes over all groups. The second pass sees the changes that the first made around a step.
constexpr int kPasses = 2;

}  // namespace

Result<EarlySteps> choose_early_steps(
    const EarlySteps& can, std::span<const std::size_t> groups,
    const std::function<Result<bool>(const EarlySteps&, const EarlySteps&)>& faster) {
  EarlySteps best = can;
  const auto try_it = [&](const EarlySteps& trial) -> Result<bool> {
    Result<bool> gains = faster(trial, best);
    if (gains && *gains) best = trial;
    return gains;
  };
  KW_TRY(try_it(EarlySteps(can.size(), false)));

  std::set<std::size_t> movable;
  for (std::size_t i = 0; i < can.size(); ++i) {
    if (can[i]) movable.insert(groups[i]);
  }
  for (int pass = 0; pass < kPasses; ++pass) {
    bool gained = false;
    for (const std::size_t group : movable) {
      EarlySteps trial = best;
      for (std::size_t i = 0; i < can.size(); ++i) {
        if (can[i] && groups[i] == group) trial[i] = !trial[i];
      }
      KW_ASSIGN(const bool tried, try_it(trial));
      gained |= tried;
    }
    if (!gained) break;
  }
  return best;
}

}  // namespace kernwright
