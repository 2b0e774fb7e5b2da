#include "device/program/launch_graph.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "device/program/context_memory.h"
#include "support/try.h"

namespace kernwright {
namespace {

std::uint64_t bits(double scalar) { return std::bit_cast<std::uint64_t>(scalar); }

/// Compares in a loop. A call of memcmp costs more for these few words, and mostly the first
/// differs.
bool same(const ArgumentView& held, const ArgumentView& wanted) {
  return std::ranges::equal(held.tensors, wanted.tensors,
                            [](DevicePointer a, DevicePointer b) { return a == b; }) &&
         std::ranges::equal(held.scalars, wanted.scalars, {}, bits, bits);
}

/// Returns a hash of a set of arguments, never 0, good enough to guess which sets come back. The
/// words are mixed independently, so that the processor can mix them at the same time.
std::uint64_t fingerprint_of(std::span<const ArgumentView> arguments) {
  std::uint64_t print = 0;
  std::uint64_t place = 0;
  const auto add = [&](std::uint64_t word) {
    place += 0x9e3779b97f4a7c15ULL;
    const std::uint64_t mixed = (word ^ place) * 0xbf58476d1ce4e5b9ULL;
    print += mixed ^ (mixed >> 32);
  };
  for (const ArgumentView& view : arguments) {
    for (const DevicePointer address : view.tensors) add(address);
    for (const double scalar : view.scalars) add(bits(scalar));
  }
  return print | 1;
}

}  // namespace

Result<std::unique_ptr<LaunchGraph>> LaunchGraph::make(const DriverApi& api,
                                                       const std::vector<SequenceStep>& steps) {
  KW_ASSIGN(const CUcontext context, current_context(api));
  const OutsideOfCaptures makes(api);
  CUgraph graph = nullptr;
  if (const DriverStatus status{"cuGraphCreate", api.graph_create(&graph, 0)}; !status) {
    return driver_error(api, status);
  }
  std::unique_ptr<LaunchGraph> made(new LaunchGraph(api, context, GraphHandle(api, graph)));
  KW_TRY(made->prepare(steps));
  return made;
}

Result<void> LaunchGraph::prepare(const std::vector<SequenceStep>& steps) {
  State initial;
  std::vector<ArgumentView> views;
  std::size_t written = 0;
  for (const SequenceStep& step : steps) {
    const ArgumentView view(step.arguments);
    Step& held = steps_.emplace_back(Step{.program = step.program,
                                          .early = step.early,
                                          .workspace = view.workspace,
                                          .tensors = {initial.tensors.size(), view.tensors.size()},
                                          .scalars = {initial.scalars.size(), view.scalars.size()},
                                          .written = {},
                                          .ahead = {},
                                          .kernels = {}});
    const ExecutionPlan& plan = step.program->plan();
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
      if (plan.tensors[i].role == TensorRole::in) continue;
      held.written.push_back({i, plan.tensors[i].bytes()});
    }
    // The work in front of the graph is unknown. Only a first step that waits for its end keeps the
    // others clear of it.
    if (step.early && !steps.front().early) {
      for (const std::size_t i : plan.launches.front().ahead) {
        held.ahead.push_back({i, plan.tensors[i].bytes()});
      }
    }
    any_ahead_ |= !held.ahead.empty();
    written += held.written.size();
    views.push_back(view);
    std::ranges::copy(view.tensors, std::back_inserter(initial.tensors));
    std::ranges::copy(view.scalars, std::back_inserter(initial.scalars));
  }
  ahead_.resize(steps.size());
  written_.reserve(written);
  find_ahead(views);
  GraphTail tail;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    Step& step = steps_[i];
    const DriverStatus status = step.program->append_to(graph_.get(), context_, views[i], tail,
                                                        &step.kernels, step.early, ahead_[i]);
    if (!status) return driver_error(api_, status);
  }
  const std::uint64_t fingerprint = fingerprint_of(views);
  for (State& state : states_) {
    CUgraphExec exec = nullptr;
    const DriverStatus status{"cuGraphInstantiate", api_.graph_instantiate(&exec, graph_.get(), 0)};
    if (!status) return driver_error(api_, status);
    state = {.exec = GraphExecHandle(api_, exec),
             .tensors = initial.tensors,
             .scalars = initial.scalars,
             .ahead = ahead_,
             .torn = false,
             .used = 0,
             .fingerprint = fingerprint};
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
  for (const Step& step : steps_) {
    status = step.program->zero_kept(stream, step.workspace);
    if (!status) return status;
  }
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

void LaunchGraph::abandon() {
  for (State& state : states_) state.exec.abandon();
  graph_.abandon();
}

ArgumentView LaunchGraph::Step::arguments(const State& state) const {
  return {{state.tensors.data() + tensors.first, tensors.count},
          {state.scalars.data() + scalars.first, scalars.count},
          workspace};
}

DriverStatus LaunchGraph::enqueue(CUstream stream) const {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    const DriverStatus status =
        step.program->enqueue(stream, step.arguments(*active_), step.early, active_->ahead[i]);
    if (!status) return status;
  }
  return {};
}

[[gnu::hot]] DriverStatus LaunchGraph::rebind(std::span<const ArgumentView> arguments) {
  const std::uint64_t fingerprint = fingerprint_of(arguments);
  for (State& state : states_) {
    if (state.fingerprint != fingerprint || !holds(state, arguments)) continue;
    activate(state);
    return {};
  }
  State& state = place_for(fingerprint);
  const DriverStatus status = change(state, arguments);
  if (!status) return status;
  state.fingerprint = fingerprint;
  activate(state);
  return {};
}

[[gnu::hot]] bool LaunchGraph::holds(const State& state,
                                     std::span<const ArgumentView> arguments) const {
  if (state.torn) return false;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (!same(steps_[i].arguments(state), arguments[i])) return false;
  }
  return true;
}

[[gnu::hot]] LaunchGraph::State& LaunchGraph::place_for(std::uint64_t fingerprint) {
  const std::span kept(states_.data(), kStates - 1);
  State& oldest = *std::ranges::min_element(kept, {}, &State::used);
  const bool comes_back = std::ranges::find(passed_, fingerprint) != passed_.end();
  if (oldest.used == 0 || comes_back) return oldest;
  State& once = states_.back();
  passed_[next_passed_] = once.fingerprint;
  next_passed_ = (next_passed_ + 1) % passed_.size();
  return once;
}

[[gnu::hot]] void LaunchGraph::find_ahead(std::span<const ArgumentView> arguments) {
  if (!any_ahead_) return;
  written_.clear();
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const std::span<const DevicePointer> tensors = arguments[i].tensors;
    const auto is_written = [&](const Tensor& tensor) {
      return written_.overlap(tensors[tensor.index], tensor.bytes);
    };
    const std::vector<Tensor>& ahead = steps_[i].ahead;
    ahead_[i] = !ahead.empty() && std::ranges::none_of(ahead, is_written);
    for (const Tensor& tensor : steps_[i].written) {
      written_.add(tensors[tensor.index], tensor.bytes);
    }
  }
}

[[gnu::hot]] DriverStatus LaunchGraph::change(State& state,
                                              std::span<const ArgumentView> arguments) {
  find_ahead(arguments);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    const ArgumentView& wanted = arguments[i];
    if (!state.torn && state.ahead[i] == ahead_[i] && same(step.arguments(state), wanted)) {
      continue;
    }
    const DriverStatus status =
        step.program->change(state.exec.get(), step.kernels,
                             {wanted.tensors, wanted.scalars, step.workspace}, ahead_[i]);
    if (!status) {
      state.torn = true;
      return status;
    }
    std::ranges::copy(wanted.tensors, state.tensors.data() + step.tensors.first);
    std::ranges::copy(wanted.scalars, state.scalars.data() + step.scalars.first);
    state.ahead[i] = ahead_[i];
  }
  state.torn = false;
  return {};
}

}  // namespace kernwright
