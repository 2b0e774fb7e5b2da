#include "launch/chain_choice.h"

#include <algorithm>
#include <numeric>

#include "support/try.h"

namespace kernwright {
namespace {

/// Passes over all groups. The second pass sees the changes that the first made around a step.
constexpr int kPasses = 2;

void choose(const StepGroup& group, StepChoice choice, ChainChoice& chain) {
  for (const std::size_t step : group.steps) {
    chain[step] = {choice.kernel, choice.early && step > 0};
  }
}

/// Returns the choices for the steps of a group, in the order in which they are tried.
std::vector<StepChoice> trials(const ChainOptions& options, const StepGroup& group,
                               const ChainChoice& best) {
  std::vector<std::size_t> order(group.kernels.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<StepChoice> late;
  for (const std::size_t kernel : order) {
    if (!group.kernels[kernel].late_as_another) late.push_back({kernel, false});
  }
  const auto without_room = [&](std::size_t kernel) {
    return std::ranges::count_if(
        group.steps, [&](std::size_t step) { return !options.has_room(best, step, kernel); });
  };
  std::ranges::stable_sort(order, {}, without_room);
  std::vector<StepChoice> found;
  for (const std::size_t kernel : order) {
    if (group.kernels[kernel].can_start_early) found.push_back({kernel, true});
  }
  found.insert(found.end(), late.begin(), late.end());
  return found;
}

/// Returns `first_choice`, but with the first kernel of each group that reads ahead, if it has one.
ChainChoice ahead_choice(const ChainOptions& options) {
  ChainChoice ahead = first_choice(options);
  for (const StepGroup& group : options.groups) {
    const auto found = std::ranges::find(group.kernels, true, &StepGroup::Kernel::reads_ahead);
    if (found == group.kernels.end()) continue;
    choose(group, {static_cast<std::size_t>(found - group.kernels.begin()), true}, ahead);
  }
  return ahead;
}

}  // namespace

ChainChoice first_choice(const ChainOptions& options) {
  ChainChoice first(options.steps);
  for (const StepGroup& group : options.groups) {
    choose(group, {0, group.kernels.front().can_start_early}, first);
  }
  return first;
}

Result<ChainChoice> choose_steps(const ChainOptions& options) {
  const ChainChoice first = first_choice(options);
  ChainChoice best = first;
  const auto gains = [&](const ChainChoice& trial) -> Result<bool> {
    if (trial == best || options.time_is_up()) return false;
    KW_ASSIGN(const bool faster, options.faster(trial, best));
    if (faster) best = trial;
    return faster;
  };
  KW_TRY(gains(ChainChoice(options.steps)));
  const ChainChoice ahead = ahead_choice(options);
  if (ahead != first) {
    KW_TRY(gains(ahead));
  }
  for (int pass = 0; pass < kPasses; ++pass) {
    bool gained = false;
    for (const StepGroup& group : options.groups) {
      for (const StepChoice choice : trials(options, group, best)) {
        ChainChoice trial = best;
        choose(group, choice, trial);
        KW_ASSIGN(const bool faster, gains(trial));
        gained |= faster;
      }
    }
    if (!gained) break;
  }
  return best;
}

}  // namespace kernwright
