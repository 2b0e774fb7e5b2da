#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include <kernwright/result.h>

namespace kernwright {

/// The choice of a step of a chain: one of its kernels, by number, and whether it starts before the
/// step in front has ended.
struct StepChoice {
  std::size_t kernel = 0;
  bool early = false;

  friend bool operator==(const StepChoice&, const StepChoice&) = default;
};
using ChainChoice = std::vector<StepChoice>;  ///< by step

/// Steps that have the same kernels to choose from, such as the same product of every layer. They
/// are changed together.
struct StepGroup {
  struct Kernel {
    bool can_start_early = false;
    bool late_as_another = false;  ///< without an early start it is the same as one before it
    bool reads_ahead = false;      ///< with an early start it reads before the step in front ends
  };
  std::vector<std::size_t> steps;
  std::vector<Kernel> kernels;
};

/// The choices that `choose_steps` has, and how it compares them.
struct ChainOptions {
  std::size_t steps = 0;
  std::vector<StepGroup> groups;  ///< each step is in one; the most promising first
  /// Returns whether the step's blocks find room beside the blocks of the step in front, if it runs
  /// this kernel and the others what the choice says. Kernels that do are tried first.
  std::function<bool(const ChainChoice&, std::size_t step, std::size_t kernel)> has_room;
  /// Returns whether the chain is faster with the first choice than with the second, which is the
  /// best so far. Its errors are returned.
  std::function<Result<bool>(const ChainChoice&, const ChainChoice&)> faster;
  std::function<bool()> time_is_up;
};

/// Returns the choice in which every step runs its first kernel, and all start early that can. The
/// first step never does.
ChainChoice first_choice(const ChainOptions& options);

/// Finds kernels and early starts that gain. A step that starts early takes room and memory
/// bandwidth from the one that still runs, and hides its start behind it: only the chain itself
/// shows which of the two counts. The search begins with `first_choice`, without any early start,
/// or with the first kernel of each group that reads ahead, whichever is fastest: a kernel that
/// reads ahead may gain only if its neighbours leave it room. Then it changes one group at a time.
/// It ends when no change makes the chain faster, or when the time is up.
Result<ChainChoice> choose_steps(const ChainOptions& options);

}  // namespace kernwright
