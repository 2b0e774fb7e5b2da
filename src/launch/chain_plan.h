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

/// The connections of a chain: which tensors of which steps a caller's pointer is, and the
/// arguments of every step.
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

  /// Errors: `invalid_argument` with the parameter and its use.
  Result<void> check(const void* const* parameters, std::size_t count) const;
  /// The arguments of every step with these addresses, which replace the old ones when `commit` is
  /// called. Allocates nothing.
  std::span<const ArgumentView> connect(const void* const* parameters);
  void commit();
  /// The arguments of every step that were committed last.
  std::span<const ArgumentView> views();

 private:
  std::size_t parameters_ = 0;
  std::vector<Connection> connections_;
  std::vector<std::shared_ptr<const LoadedKernel>> kernels_;
  std::vector<LaunchArguments> arguments_;  ///< by step
  std::vector<LaunchArguments> connected_;
  std::vector<ArgumentView> views_;
};

/// The steps, slots and connections that a `ChainBuilder` was given.
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

  /// Errors: `invalid_argument` where there are no steps, or a slot does not exist or is too small.
  Result<void> check() const;
  Layout layout() const;
  /// The steps, with addresses in memory that begins at `memory`. Fills `wiring`.
  Result<std::vector<SequenceStep>> sequence(const Layout& layout, DevicePointer memory,
                                             ChainWiring& wiring) const;
  /// A name for messages, "chain of 6 kernels".
  std::string text() const;
};

}  // namespace kernwright
