#include "device/launch_graph.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "device/context_memory.h"

namespace kernwright {
namespace {

bool same(const LaunchArguments& held, const ArgumentView& wanted) {
  return std::ranges::equal(held.tensors, wanted.tensors) &&
         std::ranges::equal(held.scalars, wanted.scalars);
}

/// Tells sets apart well enough to guess which come back; not 0.
std::uint64_t fingerprint_of(std::span<const ArgumentView> arguments) {
  std::uint64_t print = 1;
  const auto add = [&](std::uint64_t word) {
    print = (std::rotl(print, 5) ^ word) * 0x9e3779b97f4a7c15ULL;
  };
  for (const ArgumentView& view : arguments) {
    for (const DevicePointer address : view.tensors) add(address);
    for (const double scalar : view.scalars) add(std::bit_cast<std::uint64_t>(scalar));
  }
  return print | 1;
}

}  // namespace

Result<std::unique_ptr<LaunchGraph>> LaunchGraph::make(const DriverApi& api,
                                                       std::vector<SequenceStep> steps) {
  const Result<CUcontext> context = current_context(api);
  if (!context) return context.error();
  CUgraph graph = nullptr;
  if (const DriverStatus status{"cuGraphCreate", api.graph_create(&graph, 0)}; !status) {
    return driver_error(api, status);
  }
  std::unique_ptr<LaunchGraph> made(new LaunchGraph(api, *context, GraphHandle(api, graph)));
  if (Result<void> prepared = made->prepare(std::move(steps)); !prepared) return prepared.error();
  return made;
}

Result<void> LaunchGraph::prepare(std::vector<SequenceStep> steps) {
  GraphTail tail;
  std::vector<LaunchArguments> arguments;
  for (SequenceStep& step : steps) {
    Step& held = steps_.emplace_back(Step{step.program, step.early, {}});
    const DriverStatus status = step.program->append_to(graph_.get(), context_, step.arguments,
                                                        tail, &held.kernels, step.early);
    if (!status) return driver_error(api_, status);
    arguments.push_back(std::move(step.arguments));
  }
  for (State& state : states_) {
    CUgraphExec exec = nullptr;
    const DriverStatus status{"cuGraphInstantiate", api_.graph_instantiate(&exec, graph_.get(), 0)};
    if (!status) return driver_error(api_, status);
    state.exec = GraphExecHandle(api_, exec);
    state.arguments = arguments;
  }
  activate(states_.front());
  if (const DriverStatus status = upload(); !status) return driver_error(api_, status);
  return {};
}

DriverStatus LaunchGraph::upload() const {
  CUstream stream = nullptr;
  DriverStatus status{"cuStreamCreate", api_.stream_create(&stream, CU_STREAM_NON_BLOCKING)};
  if (!status) return status;
  const StreamHandle owned(api_, stream);
  for (const State& state : states_) {
    status = {"cuGraphUpload", api_.graph_upload(state.exec.get(), stream)};
    if (!status) return status;
  }
  return {"cuStreamSynchronize", api_.stream_synchronize(stream)};
}

LaunchGraph::~LaunchGraph() {
  const ContextScope scope(api_, context_);
  for (State& state : states_) state.exec.reset();
  graph_.reset();
}

DriverStatus LaunchGraph::enqueue(CUstream stream) const {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    const DriverStatus status = step.program->enqueue(stream, active_->arguments[i], step.early);
    if (!status) return status;
  }
  return {};
}

DriverStatus LaunchGraph::rebind(std::span<const ArgumentView> arguments) {
  for (State& state : states_) {
    if (state.torn || !std::ranges::equal(state.arguments, arguments, same)) continue;
    activate(state);
    return {};
  }
  const std::uint64_t fingerprint = fingerprint_of(arguments);
  State& state = place_for(fingerprint);
  const DriverStatus status = change(state, arguments);
  if (!status) return status;
  state.fingerprint = fingerprint;
  activate(state);
  return {};
}

LaunchGraph::State& LaunchGraph::place_for(std::uint64_t fingerprint) {
  const std::span kept(states_.data(), kStates - 1);
  State& oldest = *std::ranges::min_element(kept, {}, &State::used);
  const bool comes_back = std::ranges::find(passed_, fingerprint) != passed_.end();
  if (oldest.used == 0 || comes_back) return oldest;
  State& once = states_.back();
  passed_[next_passed_] = once.fingerprint;
  next_passed_ = (next_passed_ + 1) % passed_.size();
  return once;
}

DriverStatus LaunchGraph::change(State& state, std::span<const ArgumentView> arguments) const {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    LaunchArguments& held = state.arguments[i];
    if (!state.torn && same(held, arguments[i])) continue;
    const DriverStatus status = step.program->change(state.exec.get(), step.kernels, arguments[i]);
    if (!status) {
      state.torn = true;
      return status;
    }
    std::ranges::copy(arguments[i].tensors, held.tensors.begin());
    std::ranges::copy(arguments[i].scalars, held.scalars.begin());
  }
  state.torn = false;
  return {};
}

}  // namespace kernwright
