#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "device/program/context_memory.h"
#include "device/program/launch_graph.h"
#include "device/timing/path_timer.h"
#include "launch/capture.h"
#include "launch/chain_plan.h"
#include "launch/early_steps.h"
#include "support/text.h"
#include "support/try.h"
#include <kernwright/chain.h>

namespace kernwright {
namespace {

constexpr int kTuneRounds = 5;
/// The timing of chains that start other steps early. Trains are short because there are many
/// chains to compare. A smaller gain than kEarlyGain counts as none.
constexpr PathTiming kEarlyTiming{.rounds = 7, .train_us = 5'000};
constexpr double kEarlyGain = 0.005;

bool is_programmatic(ChainPath path) {
  return path == ChainPath::programmatic_stream || path == ChainPath::programmatic_graph;
}

Error chain_moved() {
  return {ErrorCode::invalid_argument, "the chain was moved to another object"};
}

}  // namespace

std::string_view to_string(ChainPath path) {
  constexpr std::array<std::string_view, 4> kNames{"stream", "programmatic_stream", "graph",
                                                   "programmatic_graph"};
  return kNames[static_cast<std::size_t>(path)];
}

/// In this order, so that kernels and memory outlive the graphs that refer to them.
struct Chain::State {
  std::vector<std::shared_ptr<const LoadedKernel>> kernels;
  ContextMemory memory;
  std::int64_t memory_bytes = 0;
  ChainWiring wiring;
  std::string text;
  std::vector<SequenceStep> steps;  ///< those that start early on programmatic paths marked
  std::unique_ptr<LaunchGraph> plain;
  std::unique_ptr<LaunchGraph> programmatic;  ///< null where no kernel waits
  ChainPath path = ChainPath::graph;

  const DriverApi& api() const { return kernels.front()->launcher()->api(); }
  LaunchGraph& graph_of(ChainPath which) const {
    return is_programmatic(which) ? *programmatic : *plain;
  }
  DriverStatus launch(CUstream stream) const {
    const LaunchGraph& graph = graph_of(path);
    const bool as_graph = path == ChainPath::graph || path == ChainPath::programmatic_graph;
    return as_graph ? graph.launch(stream) : graph.enqueue(stream);
  }
  Result<void> result(const DriverStatus& status) const {
    if (!status) return launch_error(api(), status, text);
    return {};
  }
  /// A graph in which these steps start early, with the addresses that the builder was given.
  Result<std::unique_ptr<LaunchGraph>> graph_with(const EarlySteps& early) const {
    std::vector<SequenceStep> marked = steps;
    for (std::size_t i = 0; i < marked.size(); ++i) marked[i].early = early[i];
    auto graph = LaunchGraph::make(api(), marked);
    if (!graph) return Error{graph.error().code, concat(text, ": ", graph.error().message)};
    return graph;
  }
  Result<void> choose_early(CUstream stream);
};

/// Finds the steps that gain by an early start and makes the programmatic graph again with these.
/// If no step gains, the graph stays as it is; on the other paths no step starts early.
Result<void> Chain::State::choose_early(CUstream stream) {
  std::vector<std::size_t> groups;
  EarlySteps can;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    can.push_back(i > 0 && steps[i].program->can_start_early());
    groups.push_back(static_cast<std::size_t>(
        std::ranges::find(steps, steps[i].program, &SequenceStep::program) - steps.begin()));
  }
  const auto faster = [&](const EarlySteps& a, const EarlySteps& b) -> Result<bool> {
    std::vector<std::unique_ptr<LaunchGraph>> graphs;
    std::vector<TimedCall> timed;
    for (const EarlySteps* early : {&a, &b}) {
      KW_ASSIGN(graphs.emplace_back(), graph_with(*early));
      KW_TRY(result(graphs.back()->rebind(wiring.views())));
      timed.push_back(
          {text,
           [this, graph = graphs.back().get(), stream] { return result(graph->launch(stream)); },
           {},
           {}});
    }
    KW_TRY(time_paths(api(), stream, timed, kEarlyTiming));
    return timed[0].median_period_us() < (1 - kEarlyGain) * timed[1].median_period_us();
  };
  KW_ASSIGN(const EarlySteps chosen, choose_early_steps(can, groups, faster));
  if (std::ranges::find(chosen, true) == chosen.end()) return {};
  KW_ASSIGN(auto graph, graph_with(chosen));
  KW_TRY(result(graph->rebind(wiring.views())));
  programmatic = std::move(graph);
  for (std::size_t i = 0; i < steps.size(); ++i) steps[i].early = chosen[i];
  return {};
}

Chain::Chain(std::unique_ptr<State> state) : state_(std::move(state)) {}
Chain::Chain(Chain&& other) noexcept = default;
Chain& Chain::operator=(Chain&& other) noexcept = default;
Chain::~Chain() = default;

Result<void> Chain::launch(void* stream) {
  if (!state_) return chain_moved();
  return state_->result(state_->launch(static_cast<CUstream>(stream)));
}

Result<void> Chain::rebind(std::initializer_list<const void*> parameters) {
  return rebind(parameters.begin(), parameters.size());
}

Result<void> Chain::rebind(const void* const* parameters, std::size_t count) {
  if (!state_) return chain_moved();
  State& state = *state_;
  KW_TRY(state.wiring.check(parameters, count));
  const DriverStatus status = state.graph_of(state.path).rebind(state.wiring.connect(parameters));
  // Later rebinds and other paths start from these addresses, so they are kept only after a
  // success.
  if (status) state.wiring.commit();
  return state.result(status);
}

Result<void> Chain::add_to_capture(void* stream) const {
  if (!state_) return chain_moved();
  return capture(state_->api(), state_->graph_of(state_->path), stream, state_->text);
}

std::vector<ChainPath> Chain::paths() const {
  std::vector<ChainPath> paths{ChainPath::stream, ChainPath::graph};
  if (state_ && state_->programmatic) {
    paths.push_back(ChainPath::programmatic_stream);
    paths.push_back(ChainPath::programmatic_graph);
  }
  return paths;
}

ChainPath Chain::path() const { return state_->path; }

Result<void> Chain::set_path(ChainPath path) {
  if (!state_) return chain_moved();
  if (is_programmatic(path) && !state_->programmatic) {
    return Error{ErrorCode::invalid_argument,
                 concat(state_->text, ": no kernel of it can be launched as ", to_string(path))};
  }
  const DriverStatus status = state_->graph_of(path).rebind(state_->wiring.views());
  if (status) state_->path = path;
  return state_->result(status);
}

Result<std::vector<ChainTime>> Chain::tune(void* stream) {
  if (!state_) return chain_moved();
  const auto handle = static_cast<CUstream>(stream);
  if (state_->programmatic) {
    KW_TRY(state_->choose_early(handle));
  }
  const std::vector<ChainPath> candidates = paths();
  std::vector<TimedCall> timed;
  for (const ChainPath path : candidates) {
    timed.push_back({std::string(to_string(path)),
                     [this, path, handle]() -> Result<void> {
                       if (state_->path != path) KW_TRY(set_path(path));
                       return state_->result(state_->launch(handle));
                     },
                     {},
                     {}});
  }
  KW_TRY(time_paths(state_->api(), handle, timed, {.rounds = kTuneRounds}));
  std::vector<ChainTime> times;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    times.push_back({candidates[i], timed[i].median_host_us(), timed[i].median_period_us()});
  }
  KW_TRY(set_path(candidates[best_path(timed)]));
  return times;
}

std::vector<std::size_t> Chain::early_kernels() const {
  std::vector<std::size_t> early;
  for (std::size_t i = 0; i < state_->steps.size(); ++i) {
    if (state_->steps[i].early) early.push_back(i);
  }
  return early;
}

std::int64_t Chain::memory_bytes() const { return state_->memory_bytes; }
std::size_t Chain::kernels() const { return state_->kernels.size(); }

struct ChainBuilder::Plan : ChainPlan {};

ChainBuilder::ChainBuilder() : plan_(std::make_unique<Plan>()) {}
ChainBuilder::ChainBuilder(ChainBuilder&&) noexcept = default;
ChainBuilder& ChainBuilder::operator=(ChainBuilder&&) noexcept = default;
ChainBuilder::~ChainBuilder() = default;

ChainSlot ChainBuilder::parameter(const void* address) {
  plan_->parameters.push_back(address);
  return {.is_buffer = false, .index = plan_->parameters.size() - 1, .offset_bytes = 0};
}

ChainSlot ChainBuilder::buffer(std::int64_t bytes) {
  plan_->buffers.push_back(bytes);
  return {.is_buffer = true, .index = plan_->buffers.size() - 1, .offset_bytes = 0};
}

void ChainBuilder::add(const Kernel& kernel, std::initializer_list<ChainArg> arguments) {
  add(kernel, arguments.begin(), arguments.size());
}

void ChainBuilder::add(const Kernel& kernel, const ChainArg* arguments, std::size_t count) {
  // Not in braces, where two addresses would be taken for two arguments.
  std::vector<ChainArg> kept(arguments, arguments + count);
  plan_->steps.push_back({LoadedKernel::of(kernel), std::move(kept)});
}

Result<Chain> ChainBuilder::build() const {
  KW_TRY(plan_->check());
  auto state = std::make_unique<Chain::State>();
  state->text = plan_->text();
  for (const ChainPlan::Step& step : plan_->steps) state->kernels.push_back(step.kernel);
  const ChainPlan::Layout layout = plan_->layout();
  Result<ContextMemory> memory = ContextMemory::allocate(state->api(), layout.bytes);
  if (!memory) {
    return Error{memory.error().code, concat(state->text, ": ", memory.error().message)};
  }
  state->memory = *std::move(memory);
  state->memory_bytes = layout.bytes;
  KW_ASSIGN(state->steps, plan_->sequence(layout, state->memory.address(), state->wiring));
  EarlySteps early;
  for (const SequenceStep& step : state->steps) early.push_back(step.early);
  if (std::ranges::find(early, true) != early.end()) {
    KW_ASSIGN(state->programmatic, state->graph_with(early));
  }
  KW_ASSIGN(state->plain, state->graph_with(EarlySteps(early.size(), false)));
  return Chain(std::move(state));
}

}  // namespace kernwright
