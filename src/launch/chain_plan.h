#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/program/launch_graph.h"
#include "launch/loaded_kernel.h"
#include <kernwright/chain.h>

namespace kernwright {

/// Knows where the caller's pointers go in a chain, and with what every step is launched.
class ChainWiring {
 public:
  /// A parameter as one tensor of one step.
  struct Connection {
    std::size_t parameter = 0;
    std::size_t step = 0;
    std::size_t tensor = 0;
    DevicePointer offset = 0;
  };

  void add_step(LaunchArguments arguments, std::shared_ptr<const LoadedKernel> kernel);
  void connect_to(const Connection& connection) { connections_.push_back(connection); }
  void set_parameters(std::size_t count) { parameters_ = count; }
  const LaunchArguments& arguments(std::size_t step) const { return arguments_[step]; }

  /// Errors: `invalid_argument` naming the parameter, and where it goes.
  Result<void> check(const void* const* parameters, std::size_t count) const;
  /// One view per step, with these addresses. They are in force once `commit` is called. Allocates
  /// nothing.
  std::span<const ArgumentView> connect(const void* const* parameters);
  void commit();
  /// The views that were committed last.
  std::span<const ArgumentView> views();

 private:
  std::size_t parameters_ = 0;
  std::vector<Connection> connections_;
  std::vector<std::shared_ptr<const LoadedKernel>> kernels_;
  std::vector<LaunchArguments> arguments_;  ///< by step
  std::vector<LaunchArguments> connected_;
  std::vector<ArgumentView> views_;
};

/// What a `ChainBuilder` was told.
struct ChainPlan {
  struct Step {
    std::shared_ptr<const LoadedKernel> kernel;
    std::vector<ChainArg> arguments;
  };
  /// Offsets in the chain's memory.
  struct Layout {
    std::vector<std::int64_t> buffers;
    std::vector<std::int64_t> workspaces;  ///< by step; steps of one kernel share theirs
    std::int64_t bytes = 0;
  };

  std::vector<const void*> parameters;
  std::vector<std::int64_t> buffers;  ///< bytes
  std::vector<Step> steps;

  /// Errors: `invalid_argument` for no steps, and for slots that do not exist or are too small.
  Result<void> check() const;
  Layout layout() const;
  /// The steps with their addresses in memory that begins at `memory`; fills `wiring`.
  Result<std::vector<SequenceStep>> sequence(const Layout& layout, DevicePointer memory,
                                             ChainWiring& wiring) const;
  /// "chain of 6 kernels"
  std::string text() const;
};

}  // namespace kernwright
