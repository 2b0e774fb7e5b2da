#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/program/launch_graph.h"
#include "launch/loaded_kernel.h"
#include <kernwright/chain.h>

namespace kernwright {

/// The connections of a chain: the tensors of steps that each pointer of a caller is used for, and
/// the arguments of every step.
class ChainWiring {
 public:
  /// A use of a parameter as one tensor of one step.
  struct Connection {
    std::size_t parameter = 0;
    std::size_t step = 0;
    std::size_t tensor = 0;
    DevicePointer offset = 0;
  };

  void add_step(LaunchArguments arguments, std::shared_ptr<const LoadedKernel> kernel);
  void connect_to(const Connection& connection) { connections_.push_back(connection); }
  void set_parameters(std::size_t count) { parameters_ = count; }

  /// Checks the parameters. Errors: `invalid_argument` with the parameter and its use.
  Result<void> check(const void* const* parameters, std::size_t count) const;
  /// Returns the arguments of every step with these addresses, which replace the old ones when
  /// `commit` is called. Allocates nothing.
  std::span<const ArgumentView> connect(const void* const* parameters);
  void commit();
  /// Returns the arguments of every step that were committed last. The arguments in `views` have no
  /// workspace.
  std::span<const ArgumentView> views();
  const std::vector<LaunchArguments>& arguments() const { return arguments_; }

 private:
  std::size_t parameters_ = 0;
  std::vector<Connection> connections_;
  std::vector<std::shared_ptr<const LoadedKernel>> kernels_;
  std::vector<LaunchArguments> arguments_;  ///< by step
  std::vector<LaunchArguments> connected_;
  std::vector<ArgumentView> views_;
};

/// A kernel that a step of a chain may run, with its workspace in the chain.
struct StepKernel {
  std::shared_ptr<const LoadedKernel> kernel;
  DevicePointer workspace = 0;

  const PreparedProgram& program() const { return kernel->launcher()->program(); }
};

/// The steps, slots and connections of a `ChainBuilder`.
struct ChainPlan {
  struct Step {
    std::vector<std::shared_ptr<const LoadedKernel>> kernels;  ///< to choose from
    std::vector<ChainArg> arguments;
  };
  /// Offsets in the chain's memory.
  struct Layout {
    std::vector<std::int64_t> buffers;
    /// By kernel. All steps of a kernel share its workspace, which may keep zeros in it, and no
    /// kernels share one.
    std::map<const LoadedKernel*, std::int64_t> workspaces;
    std::int64_t bytes = 0;
  };

  std::vector<const void*> parameters;
  std::vector<std::int64_t> buffers;  ///< bytes
  std::vector<Step> steps;

  /// Checks the plan. Errors: `invalid_argument` if there are no steps, a step has no kernel or
  /// kernels of several problems, or a slot does not exist or is too small.
  Result<void> check() const;
  Layout layout() const;
  /// Returns the arguments of all steps, with addresses in memory that begins at `memory`.
  Result<ChainWiring> wire(const Layout& layout, DevicePointer memory) const;
  /// Returns the kernels of every step, with their workspaces there.
  std::vector<std::vector<StepKernel>> kernels(const Layout& layout, DevicePointer memory) const;
  /// Returns a name for messages, "chain of 6 kernels".
  std::string text() const;

 private:
  Result<void> check_kernels(std::size_t step) const;
};

}  // namespace kernwright
