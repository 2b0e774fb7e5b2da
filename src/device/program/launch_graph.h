#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "device/driver/handles.h"
#include "device/program/prepared_program.h"
#include <kernwright/result.h>

namespace kernwright {

/// One program of a sequence, with the arguments that it starts with.
struct SequenceStep {
  const PreparedProgram* program = nullptr;
  LaunchArguments arguments;
  /// May start before the step ahead has ended: the program `can_start_early`. What lies further
  /// back has ended by then: the step ahead waited for it, or started after it.
  bool early = false;
};

/// Programs that follow each other, instantiated as a graph: one driver call launches them all.
/// Tensors and scalars can be changed between launches. Up to kStates sets of them stay ready, each
/// in an executable graph of its own: buffers that alternate between a few addresses cost no driver
/// call. Sets that do not come back share one of these graphs, since changing it again and again is
/// cheaper than changing all in turn (H200: 2.1 against 2.6 us with the launch). Belongs to the
/// context that was current when it was made; used by one thread at a time. Programs and workspaces
/// outlive it.
class LaunchGraph {
 public:
  static constexpr std::size_t kStates = 4;

  /// The arguments must have passed `check_arguments`; references and magnitudes are not among
  /// them. Errors: `invalid_argument` where the calling thread has no current context; `device`.
  static Result<std::unique_ptr<LaunchGraph>> make(const DriverApi& api,
                                                   const std::vector<SequenceStep>& steps);
  LaunchGraph(const LaunchGraph&) = delete;
  LaunchGraph& operator=(const LaunchGraph&) = delete;
  ~LaunchGraph();

  DriverStatus launch(CUstream stream) const {
    return {"cuGraphLaunch", api_.graph_launch(active_->exec.get(), stream)};
  }

  /// The same work as launches of its own, which a stream capture can record.
  DriverStatus enqueue(CUstream stream) const;

  /// From the next launch on: `arguments` has one entry per step, each with the step's workspace.
  /// Allocates nothing. After a failure the arguments are those of before.
  DriverStatus rebind(std::span<const ArgumentView> arguments);

  /// Leaves the driver's graphs as they are on destruction, see `DriverHandle::abandon`.
  void abandon();

 private:
  /// An executable graph and what its nodes have been given.
  struct State {
    GraphExecHandle exec;
    std::vector<DevicePointer> tensors;  ///< of all steps, one after the other
    std::vector<double> scalars;
    bool torn = false;       ///< some of its nodes have got others
    std::uint64_t used = 0;  ///< when it became active; 0: never
    std::uint64_t fingerprint = 0;
  };
  struct Range {
    std::size_t first;
    std::size_t count;
  };
  struct Step {
    const PreparedProgram* program;
    bool early;
    DevicePointer workspace;
    Range tensors;  ///< its own of a state's
    Range scalars;
    std::vector<KernelNode> kernels;

    ArgumentView arguments(const State& state) const;
  };

  LaunchGraph(const DriverApi& api, CUcontext context, GraphHandle graph)
      : api_(api), context_(context), graph_(std::move(graph)) {}

  Result<void> prepare(const std::vector<SequenceStep>& steps);
  DriverStatus upload() const;
  /// Where a set goes that is not ready: to a place that was never used, to the one not used for
  /// longest where the set comes back, else to the place of sets that come once.
  State& place_for(std::uint64_t fingerprint);
  bool holds(const State& state, std::span<const ArgumentView> arguments) const;
  DriverStatus change(State& state, std::span<const ArgumentView> arguments) const;
  void activate(State& state) {
    active_ = &state;
    state.used = ++clock_;
  }

  const DriverApi& api_;
  CUcontext context_;
  GraphHandle graph_;  ///< never changed: its nodes name those of the executable graphs
  std::vector<Step> steps_;
  std::array<State, kStates> states_;  ///< the last one for sets that come once
  /// Fingerprints of the sets that were there last.
  std::array<std::uint64_t, kStates - 1> passed_{};
  std::size_t next_passed_ = 0;
  State* active_ = nullptr;
  std::uint64_t clock_ = 0;
};

}  // namespace kernwright
