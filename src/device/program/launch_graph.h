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
#include "device/program/written_bytes.h"
#include <kernwright/result.h>

namespace kernwright {

/// One program of a sequence, with its first arguments.
struct SequenceStep {
  const PreparedProgram* program = nullptr;
  LaunchArguments arguments;
  /// True if it may start before the previous step has ended; the program then `can_start_early`.
  /// The previous step may itself still wait for the one in front of it then.
  bool early = false;
};

/// Programs that follow each other, as an instantiated graph, which one driver call launches.
///
/// Tensors and scalars can be changed between launches. Up to kStates sets of them stay ready, each
/// in an executable graph of its own. So buffers that alternate between a few addresses cost no
/// driver call. Sets that do not come back share one of these graphs, because changing the same
/// graph again and again is cheaper than changing all in turn (on an H200 2.1 us with the launch,
/// against 2.6).
///
/// It belongs to the context that was current when it was made, and is used by one thread at a
/// time. Programs and workspaces must outlive it.
///
/// A step that starts early reads the tensors which its launch names as `ahead` before the wait,
/// but only if no step in front of it writes a byte of them: several steps may run at the same
/// time then. Steps behind it follow it, and so does the next launch of the graph.
class LaunchGraph {
 public:
  static constexpr std::size_t kStates = 4;

  /// Makes and instantiates the graph. The arguments must have passed `check_arguments`, and have
  /// no references and magnitudes. Errors: `invalid_argument` if the calling thread has no current
  /// context; `device`.
  static Result<std::unique_ptr<LaunchGraph>> make(const DriverApi& api,
                                                   const std::vector<SequenceStep>& steps);
  LaunchGraph(const LaunchGraph&) = delete;
  LaunchGraph& operator=(const LaunchGraph&) = delete;
  ~LaunchGraph();

  DriverStatus launch(CUstream stream) const {
    return {"cuGraphLaunch", api_.graph_launch(active_->exec.get(), stream)};
  }

  /// Enqueues the same work as single launches, which a stream capture can record.
  DriverStatus enqueue(CUstream stream) const;

  /// Changes the tensors and scalars from the next launch on. There is one entry per step; each
  /// step keeps its workspace. Allocates nothing. After a failure the old arguments stay.
  DriverStatus rebind(std::span<const ArgumentView> arguments);

  /// Makes the destructor leave the driver's graphs as they are, see `DriverHandle::abandon`.
  void abandon();

 private:
  /// An executable graph and the arguments of its nodes.
  struct State {
    GraphExecHandle exec;
    std::vector<DevicePointer> tensors;  ///< of all steps, one after the other
    std::vector<double> scalars;
    std::vector<bool> ahead;  ///< by step, whether it reads ahead
    bool torn = false;        ///< a change failed: some nodes have other arguments
    std::uint64_t used = 0;   ///< when it became active; 0: never
    std::uint64_t fingerprint = 0;
  };
  struct Range {
    std::size_t first;
    std::size_t count;
  };
  /// A tensor of a step, with all bytes from its first element to its last.
  struct Tensor {
    std::size_t index;
    std::int64_t bytes;
  };
  struct Step {
    const PreparedProgram* program;
    bool early;
    DevicePointer workspace;
    Range tensors;  ///< the step's part of State::tensors
    Range scalars;
    std::vector<Tensor> written;
    std::vector<Tensor> ahead;  ///< tensors that it reads ahead if it starts early
    std::vector<KernelNode> kernels;

    ArgumentView arguments(const State& state) const;
  };

  LaunchGraph(const DriverApi& api, CUcontext context, GraphHandle graph)
      : api_(api), context_(context), graph_(std::move(graph)) {}

  Result<void> prepare(const std::vector<SequenceStep>& steps);
  DriverStatus upload() const;
  /// Returns the state for a set that is not ready: one that was never used; or, if the set comes
  /// back, the one that was not used for longest; or else the state of sets that come once.
  State& place_for(std::uint64_t fingerprint);
  bool holds(const State& state, std::span<const ArgumentView> arguments) const;
  DriverStatus change(State& state, std::span<const ArgumentView> arguments);
  /// Finds in `ahead_` which steps read ahead with these arguments. Allocates nothing.
  void find_ahead(std::span<const ArgumentView> arguments);
  void activate(State& state) {
    active_ = &state;
    state.used = ++clock_;
  }

  const DriverApi& api_;
  CUcontext context_;
  GraphHandle graph_;  ///< never changed: the executable graphs are addressed by its nodes
  std::vector<Step> steps_;
  std::array<State, kStates> states_;  ///< the last one is for sets that come once
  /// Fingerprints of the sets that were last in the state of sets that come once.
  std::array<std::uint64_t, kStates - 1> passed_{};
  std::size_t next_passed_ = 0;
  WrittenBytes written_;     ///< of the steps that `find_ahead` has passed
  std::vector<bool> ahead_;  ///< by step; stays false if no step has anything to read ahead
  bool any_ahead_ = false;
  State* active_ = nullptr;
  std::uint64_t clock_ = 0;
};

}  // namespace kernwright
