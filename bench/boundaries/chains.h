#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/boundaries/kernels.h"
#include "bench/boundaries/lab.h"

namespace kernwright::boundaries {

/// What the steps of a chain do: each reads what the one before passed on and its part of the
/// weights, computes, and passes on.
struct Work {
  std::string name;
  Reach reach = Reach::nobody;
  std::uint32_t words = 0;  ///< of 32 bits, that a step passes on
  /// The weights of the steps of each unit, in turn.
  std::vector<std::vector<StepWeights>> units = {};
  std::uint64_t region_slots = 0;  ///< of the weights; their last row is followed by the first

  std::uint32_t steps() const { return static_cast<std::uint32_t>(units.front().size()); }
  double bytes_per_unit(std::uint32_t blocks) const;
};

/// The same work in steps that read `slots` slots a block, of `region_slots` in turn. There are so
/// many units that the L2 cannot hold what they read.
Work with_steps(Work work, std::uint32_t steps, std::uint32_t slots, std::uint32_t blocks,
                std::uint64_t region_slots);

/// A chain whose steps are kernels, named by when the next may start and by what is done early:
/// "none_nothing", "start_registers".
struct StepKernels {
  std::string_view name = "none_nothing";
  std::uint32_t threads = 512;
  bool in_graph = true;
};

/// A chain that is one cooperative kernel.
struct PersistentKernel {
  std::string_view crossing;
  Source source = Source::none;
  std::uint32_t consumers = 512;  ///< threads, without the warp that copies
};

/// Adds the work as an arm, whose every sample is checked against the host. Where the GPU lacks
/// what it needs, the arm says so.
Arm make_arm(Lab& lab, std::string name, const Work& work, const StepKernels& kernels);
Arm make_arm(Lab& lab, std::string name, const Work& work, const PersistentKernel& kernel);

/// The slots that the last launch of a kernel with `Source::beside` streamed, over all blocks.
Result<std::uint64_t> streamed_slots(Lab& lab, const Arm& arm);

}  // namespace kernwright::boundaries
