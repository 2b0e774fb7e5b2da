#include <array>
#include <utility>

#include "device/program/context_memory.h"
#include "device/program/launch_graph.h"
#include "launch/capture.h"
#include "launch/loaded_kernel.h"
#include "support/text.h"
#include "support/try.h"
#include <kernwright/baked_launch.h>

namespace kernwright {

/// In this order, so that kernel and workspace outlive the graph that refers to them.
struct BakedLaunch::State {
  std::shared_ptr<const LoadedKernel> kernel;
  ContextMemory workspace;
  std::unique_ptr<LaunchGraph> graph;

  const DriverApi& api() const { return kernel->launcher()->api(); }
};

namespace {

Error launch_moved() {
  return {ErrorCode::invalid_argument, "the baked launch was moved to another object"};
}

}  // namespace

Result<BakedLaunch> LoadedKernel::bake(const Arg* arguments, std::size_t count) const {
  BoundArguments bound;
  KW_TRY(bind(arguments, count, bound));
  if (check_launches_) {
    KW_TRY(check_memory(bound, 0));
  }
  const DriverApi& api = launcher_->api();
  Result<ContextMemory> workspace = ContextMemory::allocate(api, workspace_bytes_);
  if (!workspace) {
    return Error{workspace.error().code,
                 concat("workspace of ", summary().problem, ": ", workspace.error().message)};
  }
  const ArgumentView view = bound.view(workspace->address());
  SequenceStep step{.program = &launcher_->program(),
                    .arguments = {.tensors = {view.tensors.begin(), view.tensors.end()},
                                  .scalars = {view.scalars.begin(), view.scalars.end()},
                                  .workspace = view.workspace,
                                  .references = {},
                                  .magnitudes = {}},
                    .early = launcher_->program().starts_early()};
  Result<std::unique_ptr<LaunchGraph>> graph = LaunchGraph::make(api, {std::move(step)});
  if (!graph) {
    return Error{graph.error().code, concat(summary().problem, ": ", graph.error().message)};
  }
  return BakedLaunch(std::unique_ptr<BakedLaunch::State>(
      new BakedLaunch::State{shared_from_this(), *std::move(workspace), *std::move(graph)}));
}

BakedLaunch::BakedLaunch(std::unique_ptr<State> state) : state_(std::move(state)) {}
BakedLaunch::BakedLaunch(BakedLaunch&& other) noexcept = default;
BakedLaunch& BakedLaunch::operator=(BakedLaunch&& other) noexcept = default;
BakedLaunch::~BakedLaunch() = default;

[[gnu::hot]] Result<void> BakedLaunch::launch(void* stream) {
  if (!state_) return launch_moved();
  const DriverStatus status = state_->graph->launch(static_cast<CUstream>(stream));
  if (!status) return launch_error(state_->api(), status, summary().problem);
  return {};
}

[[gnu::hot]] Result<void> BakedLaunch::rebind(std::initializer_list<Arg> arguments) {
  return rebind(arguments.begin(), arguments.size());
}

[[gnu::hot]] Result<void> BakedLaunch::rebind(const Arg* arguments, std::size_t count) {
  if (!state_) return launch_moved();
  const LoadedKernel& kernel = *state_->kernel;
  BoundArguments bound;
  KW_TRY(kernel.bind(arguments, count, bound));
  if (kernel.checks_launches()) {
    KW_TRY(kernel.check_memory(bound, 0));
  }
  const std::array<ArgumentView, 1> views{bound.view(state_->workspace.address())};
  const DriverStatus status = state_->graph->rebind(views);
  if (!status) return launch_error(state_->api(), status, summary().problem);
  return {};
}

Result<void> BakedLaunch::add_to_capture(void* stream) const {
  if (!state_) return launch_moved();
  return capture(state_->api(), *state_->graph, stream, summary().problem);
}

const KernelSummary& BakedLaunch::summary() const { return state_->kernel->summary(); }

}  // namespace kernwright
