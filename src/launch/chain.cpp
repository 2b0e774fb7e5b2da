#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <utility>

#include "device/program/context_memory.h"
#include "device/program/launch_graph.h"
#include "device/timing/path_timer.h"
#include "launch/capture.h"
#include "launch/chain_choice.h"
#include "launch/chain_plan.h"
#include "model/candidate/candidate.h"
#include "model/result/evidence.h"
#include "support/text.h"
#include "support/try.h"
#include <kernwright/chain.h>

namespace kernwright {
namespace {

constexpr int kTuneRounds = 5;
/// The timing of chains that run other kernels or start other steps early. Trains are short because
/// there are many chains to compare. A chain is faster if it gains kLeastGain, and in all rounds
/// but kMostLost of them. One that loses kClearLoss at a glance is not timed in full.
constexpr PathTiming kGlance{.rounds = 2, .train_us = 5'000};
constexpr PathTiming kTrialTiming{.rounds = 7, .seconds = 0.4, .train_us = 5'000};
constexpr double kLeastGain = 0.005;
constexpr double kMostLost = 1.0 / 7;
constexpr double kClearLoss = 0.03;
/// The time that the search for kernels and early starts may take. The comparison that runs then
/// ends.
constexpr std::chrono::seconds kSearchTime{8};

/// Returns whether the first is faster than the second by more than chance. The calls of the two
/// were timed in turn.
bool is_faster(const TimedCall& one, const TimedCall& other) {
  std::size_t lost = 0;
  for (std::size_t i = 0; i < one.period_us.size(); ++i) {
    if (one.period_us[i] >= other.period_us[i]) ++lost;
  }
  return one.median_period_us() < (1 - kLeastGain) * other.median_period_us() &&
         static_cast<double>(lost) <= kMostLost * static_cast<double>(one.period_us.size());
}

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
  std::vector<std::vector<StepKernel>> kernels;  ///< by step, the ones to choose from
  ContextMemory memory;
  std::int64_t memory_bytes = 0;
  ChainWiring wiring;
  std::string text;
  ChainChoice chosen;  ///< with the early starts of programmatic paths
  std::unique_ptr<LaunchGraph> plain;
  std::unique_ptr<LaunchGraph> programmatic;  ///< null if no kernel waits
  ChainPath path = ChainPath::graph;

  const DriverApi& api() const { return kernels.front().front().kernel->launcher()->api(); }
  const StepKernel& kernel(std::size_t step) const { return kernels[step][chosen[step].kernel]; }
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
  bool has_choice() const {
    return programmatic ||
           std::ranges::any_of(kernels, [](const auto& of_step) { return of_step.size() > 1; });
  }
  ChainOptions options() const;
  Result<std::unique_ptr<LaunchGraph>> graph_with(const ChainChoice& choice) const;
  Result<void> adopt(ChainChoice choice);
  Result<void> choose(CUstream stream);
};

/// Returns the groups of steps with the kernels that they may run. The groups that take most of the
/// time come first.
ChainOptions Chain::State::options() const {
  ChainOptions options{
      .steps = kernels.size(), .groups = {}, .has_room = {}, .faster = {}, .time_is_up = [] {
        return false;
      }};
  std::map<std::vector<const LoadedKernel*>, std::size_t> numbers;
  for (std::size_t step = 0; step < kernels.size(); ++step) {
    std::vector<const LoadedKernel*> key;
    for (const StepKernel& one : kernels[step]) key.push_back(one.kernel.get());
    const auto [found, fresh] = numbers.emplace(std::move(key), options.groups.size());
    if (!fresh) {
      options.groups[found->second].steps.push_back(step);
      continue;
    }
    StepGroup& group = options.groups.emplace_back();
    group.steps.push_back(step);
    for (std::size_t i = 0; i < kernels[step].size(); ++i) {
      const PreparedProgram& program = kernels[step][i].program();
      const bool late_as_another =
          std::any_of(kernels[step].begin(), kernels[step].begin() + static_cast<std::ptrdiff_t>(i),
                      [&](const StepKernel& before) {
                        return before.kernel->summary().artifact ==
                                   kernels[step][i].kernel->summary().artifact &&
                               same_when_late(before.program().plan(), program.plan());
                      });
      group.kernels.push_back({program.can_start_early(), late_as_another,
                               program.can_start_early() && reads_ahead(program.plan())});
    }
  }
  const auto time_us = [this](const StepGroup& group) {
    const KernelSummary& summary = kernels[group.steps.front()].front().kernel->summary();
    const double us = summary.measured_us > 0 ? summary.measured_us : summary.predicted_us;
    return us * static_cast<double>(group.steps.size());
  };
  std::ranges::stable_sort(options.groups, std::greater<>(), time_us);
  return options;
}

/// Makes a graph with the present addresses.
Result<std::unique_ptr<LaunchGraph>> Chain::State::graph_with(const ChainChoice& choice) const {
  std::vector<SequenceStep> sequence;
  for (std::size_t i = 0; i < choice.size(); ++i) {
    const StepKernel& one = kernels[i][choice[i].kernel];
    SequenceStep& step =
        sequence.emplace_back(SequenceStep{&one.program(), wiring.arguments()[i], choice[i].early});
    step.arguments.workspace = one.workspace;
  }
  auto graph = LaunchGraph::make(api(), sequence);
  if (!graph) return Error{graph.error().code, concat(text, ": ", graph.error().message)};
  return graph;
}

/// Makes both graphs from the kernels that were chosen. If none of them starts early, every kernel
/// that can does so on the programmatic paths.
Result<void> Chain::State::adopt(ChainChoice choice) {
  ChainChoice late = choice;
  for (StepChoice& step : late) step.early = false;
  if (choice == late) {
    for (std::size_t i = 1; i < choice.size(); ++i) {
      choice[i].early = kernels[i][choice[i].kernel].program().can_start_early();
    }
  }
  KW_ASSIGN(std::unique_ptr<LaunchGraph> without, graph_with(late));
  std::unique_ptr<LaunchGraph> with;
  if (choice != late) {
    KW_ASSIGN(with, graph_with(choice));
  }
  plain = std::move(without);
  programmatic = std::move(with);
  chosen = std::move(choice);
  if (!programmatic && is_programmatic(path)) path = ChainPath::graph;
  return {};
}

/// Finds the kernels and the early starts that gain, and makes the graphs again with these.
Result<void> Chain::State::choose(CUstream stream) {
  std::unique_ptr<LaunchGraph> best;  // of the best choice so far
  const auto until = std::chrono::steady_clock::now() + kSearchTime;
  ChainOptions from = options();
  from.time_is_up = [until] { return std::chrono::steady_clock::now() >= until; };
  const Multiprocessors gpu = kernels.front().front().program().multiprocessors();
  from.has_room = [&](const ChainChoice& choice, std::size_t step, std::size_t kernel) {
    if (step == 0) return true;
    const StepKernel& ahead = kernels[step - 1][choice[step - 1].kernel];
    return fits_beside(ahead.program().last_demand(),
                       kernels[step][kernel].program().first_demand(), gpu);
  };
  from.faster = [&](const ChainChoice& a, const ChainChoice& b) -> Result<bool> {
    if (!best) {
      KW_ASSIGN(best, graph_with(b));
    }
    KW_ASSIGN(std::unique_ptr<LaunchGraph> trial, graph_with(a));
    std::vector<TimedCall> timed;
    for (const LaunchGraph* graph : {trial.get(), best.get()}) {
      timed.push_back(
          {text, [this, graph, stream] { return result(graph->launch(stream)); }, {}, {}});
    }
    KW_TRY(time_paths(api(), stream, timed, kGlance));
    if (timed[0].median_period_us() > (1 + kClearLoss) * timed[1].median_period_us()) return false;
    KW_TRY(time_paths(api(), stream, timed, kTrialTiming));
    if (!is_faster(timed[0], timed[1])) return false;
    best = std::move(trial);
    return true;
  };
  KW_ASSIGN(ChainChoice found, choose_steps(from));
  return adopt(std::move(found));
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
  if (state_->has_choice()) {
    KW_TRY(state_->choose(handle));
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
  KW_TRY(set_path(best_path(times)->path));
  return times;
}

std::vector<std::size_t> Chain::early_kernels() const {
  std::vector<std::size_t> early;
  for (std::size_t i = 0; i < state_->chosen.size(); ++i) {
    if (state_->chosen[i].early) early.push_back(i);
  }
  return early;
}

const KernelSummary& Chain::summary(std::size_t kernel) const {
  return state_->kernel(kernel).kernel->summary();
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
  add(std::vector{kernel}, arguments, count);
}

void ChainBuilder::add(const std::vector<Kernel>& kernels,
                       std::initializer_list<ChainArg> arguments) {
  add(kernels, arguments.begin(), arguments.size());
}

void ChainBuilder::add(const std::vector<Kernel>& kernels, const ChainArg* arguments,
                       std::size_t count) {
  // Not in braces, because two addresses in braces would be taken for two arguments.
  std::vector<ChainArg> kept(arguments, arguments + count);
  ChainPlan::Step& step = plan_->steps.emplace_back(ChainPlan::Step{{}, std::move(kept)});
  for (const Kernel& kernel : kernels) step.kernels.push_back(LoadedKernel::of(kernel));
}

Result<Chain> ChainBuilder::build() const {
  KW_TRY(plan_->check());
  auto state = std::make_unique<Chain::State>();
  state->text = plan_->text();
  const ChainPlan::Layout layout = plan_->layout();
  const DriverApi& api = plan_->steps.front().kernels.front()->launcher()->api();
  Result<ContextMemory> memory = ContextMemory::allocate(api, layout.bytes);
  if (!memory) {
    return Error{memory.error().code, concat(state->text, ": ", memory.error().message)};
  }
  state->memory = *std::move(memory);
  state->memory_bytes = layout.bytes;
  KW_ASSIGN(state->wiring, plan_->wire(layout, state->memory.address()));
  state->kernels = plan_->kernels(layout, state->memory.address());
  KW_TRY(state->adopt(first_choice(state->options())));
  return Chain(std::move(state));
}

}  // namespace kernwright
