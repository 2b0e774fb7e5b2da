#include "bench/boundaries/lab.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "support/text.h"
#include "support/try.h"

namespace kernwright::boundaries {
namespace {

/// The weights of Qwen3-0.6B and of Qwen3-8B, of one decode step.
constexpr std::int64_t kSmallModelBytes = 1'192'099'840;
constexpr std::int64_t kLargeModelBytes = 15'136'811'008;
constexpr std::int64_t kSpareBytes = std::int64_t{2} << 30;

double quantile(std::vector<double> values, double part) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(
      std::lround(part * static_cast<double>(values.size() - 1)))];
}

}  // namespace

double Arm::us_per_step() const { return quantile(us, 0.5) / steps; }

nlohmann::ordered_json row_of(const std::string& problem, const Arm& arm) {
  nlohmann::ordered_json row{{"problem", concat(problem, " arm=", arm.name)}};
  if (!arm.skipped.empty()) {
    row["skipped"] = arm.skipped;
    return row;
  }
  if (!arm.error.empty()) {
    row["error"] = arm.error;
    return row;
  }
  const double us = quantile(arm.us, 0.5);
  row["us"] = us;
  row["low_us"] = quantile(arm.us, 0.25);
  row["high_us"] = quantile(arm.us, 0.75);
  row["steps"] = arm.steps;
  row["step_us"] = us / arm.steps;
  if (arm.bytes > 0) {
    row["bytes"] = arm.bytes;
    row["tbps"] = arm.bytes / us * 1e-6;
  }
  row["rounds"] = arm.us.size();
  row.update(arm.more);
  return row;
}

Result<std::unique_ptr<Lab>> Lab::open(CompilePool& pool, std::uint32_t delay_seed) {
  KW_ASSIGN(BenchDevice gpu, BenchDevice::open(pool));
  std::unique_ptr<Lab> lab(new Lab(std::move(gpu), delay_seed));
  if (lab->profile().sm_arch < 80) {
    return Error{ErrorCode::unavailable,
                 concat("the kernels need sm_80, the GPU is sm_", lab->profile().sm_arch)};
  }
  const ContextScope scope(lab->gpu_.context->api(), lab->gpu_.context->context());
  KW_TRY(lab->gpu_.context->check(scope.status()));
  KW_TRY(lab->compile(pool));
  KW_TRY(lab->make_weights());
  return lab;
}

Result<void> Lab::compile(CompilePool& pool) {
  std::vector<Build> builds;
  for (const std::string_view file : kKernelFiles) {
    KW_ASSIGN(CompileRequest request, kernel_request(file, profile().sm_arch));
    builds.push_back(pool.submit(std::move(request)));
  }
  for (const Build& build : builds) {
    const CompileResult compiled = build.get();
    if (!compiled) return compiled.error();
    for (const KernelEntry& entry : (*compiled)->entries) kernels_[entry.name] = *compiled;
  }
  return {};
}

Result<void> Lab::make_weights() {
  std::size_t free = 0;
  std::size_t total = 0;
  const DriverApi& api = gpu_.context->api();
  {
    const ContextScope scope(api, gpu_.context->context());
    KW_TRY(gpu_.context->check({"cuMemGetInfo", api.mem_get_info(&free, &total)}));
  }
  const bool large = static_cast<std::int64_t>(free) > kLargeModelBytes + kSpareBytes;
  KW_ASSIGN(weights_, gpu_.device->allocate(large ? kLargeModelBytes : kSmallModelBytes));
  const KernelShape shape{.kernel = "number_words",
                          .pointers = 1,
                          .numbers = 1,
                          .blocks = blocks() * 4,
                          .threads = 256};
  KW_ASSIGN(const PreparedProgram* numbering, program(shape));
  LaunchArguments arguments;
  arguments.tensors = {weights()};
  const auto vectors = weights_->bytes() / 16;
  arguments.scalars = {static_cast<double>(vectors)};
  const ContextScope scope(api, gpu_.context->context());
  KW_TRY(gpu_.context->check(numbering->enqueue(gpu_.context->stream(), arguments, false)));
  return gpu_.context->wait();
}

std::uint64_t Lab::region_slots() const {
  return static_cast<std::uint64_t>(kSmallModelBytes) / kSlotBytes;
}

std::uint64_t Lab::weights_slots() const {
  return static_cast<std::uint64_t>(weights_->bytes()) / kSlotBytes;
}

Result<const PreparedProgram*> Lab::program(const KernelShape& shape) {
  const std::string key = concat(shape.kernel, " ", shape.blocks, " ", shape.threads, " ",
                                 shape.shared_bytes, " ", shape.programmatic ? "early" : "");
  std::unique_ptr<PreparedProgram>& loaded = programs_[key];
  if (loaded) return loaded.get();
  const auto kernel = kernels_.find(shape.kernel);
  if (kernel == kernels_.end()) {
    return Error{ErrorCode::not_found, concat("no kernel ", shape.kernel)};
  }
  const ContextScope scope(gpu_.context->api(), gpu_.context->context());
  KW_TRY(gpu_.context->check(scope.status()));
  DriverStatus status;
  KW_ASSIGN(loaded, PreparedProgram::load(gpu_.context->api(), gpu_.context->device(),
                                          kernel->second->bits, shape.plan(), status));
  return loaded.get();
}

Result<std::unique_ptr<DeviceBuffer>> Lab::zeros(std::int64_t bytes) {
  KW_ASSIGN(std::unique_ptr<DeviceBuffer> memory, gpu_.device->allocate(bytes));
  KW_TRY(gpu_.device->fill(memory->address(), 0, bytes));
  KW_TRY(gpu_.device->wait());
  return memory;
}

Result<double> Lab::sample_stream(const Arm& arm) {
  CudaContext& context = *gpu_.context;
  const DriverApi& api = context.api();
  EventHandle events[2];
  for (EventHandle& event : events) {
    CUevent made = nullptr;
    KW_TRY(context.check({"cuEventCreate", api.event_create(&made, CU_EVENT_DEFAULT)}));
    event = EventHandle(api, made);
  }
  KW_TRY(context.check({"cuEventRecord", api.event_record(events[0].get(), context.stream())}));
  for (const std::vector<SequenceStep>& unit : arm.units) {
    for (const SequenceStep& step : unit) {
      KW_TRY(context.check(step.program->enqueue(context.stream(), step.arguments, step.early)));
    }
  }
  KW_TRY(context.check({"cuEventRecord", api.event_record(events[1].get(), context.stream())}));
  KW_TRY(context.wait());
  float milliseconds = 0;
  KW_TRY(context.check({"cuEventElapsedTime",
                        api.event_elapsed_time(&milliseconds, events[0].get(), events[1].get())}));
  return static_cast<double>(milliseconds) * 1e3 / static_cast<double>(arm.units.size());
}

Result<double> Lab::sample_once(Arm& arm) {
  const ContextScope scope(gpu_.context->api(), gpu_.context->context());
  KW_TRY(gpu_.context->check(scope.status()));
  double us = 0;
  if (arm.in_graph) {
    if (!arm.graph) {
      KW_ASSIGN(arm.graph,
                TimedGraph::make(gpu_.context, arm.units, static_cast<int>(arm.units.size())));
    }
    TimerCheck unused;
    KW_ASSIGN(const Sample sample, arm.graph->sample(gpu_.gate.get(), nullptr, unused));
    us = sample.us;
  } else {
    KW_ASSIGN(us, sample_stream(arm));
  }
  if (arm.check) KW_TRY(arm.check());
  return us;
}

void Lab::sample(std::span<Arm> arms, int rounds) {
  // Round -1 pages in the code.
  for (int round = -1; round < rounds; ++round) {
    for (std::size_t i = 0; i < arms.size(); ++i) {
      Arm& arm = arms[(i + static_cast<std::size_t>(round + 1)) % arms.size()];
      if (!arm.skipped.empty() || !arm.error.empty()) continue;
      const Result<double> us = sample_once(arm);
      if (!us) {
        arm.error = us.error().message;
      } else if (round >= 0) {
        arm.us.push_back(*us);
      }
    }
  }
}

}  // namespace kernwright::boundaries
