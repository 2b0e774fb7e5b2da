// Simulates a server that is sealed before its first request: every step asks for all problems of
// one decoder layer by its families, and launches them. Each step runs twice in turn, so that the
// second time all of its sizes were seen before. Fails if a step compiles, loads or waits for the
// device. With --recorded each problem of a list is a step instead. recorded_sizes.json is from
// FlashInfer-Bench (flashinfer_trace/workloads, commit f5c35b21), which tells the number of
// sequences and the sum of their keys, so they are as long as each other here.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <time.h>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/common/bench_json.h"
#include "bench/common/command.h"
#include "bench/common/percentile.h"
#include "bench/common/simulated_server.h"
#include "device/driver/driver.h"
#include "model/operation/ranged_problem.h"
#include "service/serve/core.h"
#include "service/sweep/worklist.h"
#include "support/names.h"
#include "support/steady_seconds.h"
#include "support/text.h"

namespace kernwright {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kUsage =
    "usage: server_steps --cache DIR --layer LIST [--steps N] [--seed S] [--sku ID] [--json FILE]\n"
    "       server_steps --cache DIR --recorded LIST [--sku ID] [--json FILE]\n"
    "       LIST is a worklist: of the families of a layer, as\n"
    "       bench/worklists/layer_llama_8b.json, or of problems, as recorded_sizes.json there\n"
    "       With --sku nothing is launched: plans are made alone.\n";

/// Microseconds of the clock, and of this thread alone, which other processes do not lengthen.
struct HostTime {
  double us = 0;
  double of_thread_us = 0;

  static HostTime now() { return {of(CLOCK_MONOTONIC), of(CLOCK_THREAD_CPUTIME_ID)}; }
  HostTime operator-(const HostTime& other) const {
    return {us - other.us, of_thread_us - other.of_thread_us};
  }

 private:
  static double of(clockid_t clock) {
    timespec time{};
    ::clock_gettime(clock, &time);
    return 1e6 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_nsec);
  }
};

/// The calls of the driver that load code, that may wait for the device, and that take a workspace
/// from the pool, which may map memory.
struct DriverCalls {
  std::int64_t loads = 0;
  std::int64_t waits = 0;
  std::int64_t takes = 0;
  double takes_us = 0;
};
DriverCalls driver_calls;

/// Counts the calls of one function of the driver.
template <auto Function, std::int64_t DriverCalls::* Count>
struct Counted;
template <typename... Arguments, CUresult (*DriverApi::*Function)(Arguments...),
          std::int64_t DriverCalls::* Count>
struct Counted<Function, Count> {
  static inline CUresult (*real)(Arguments...) = nullptr;
  static CUresult call(Arguments... arguments) {
    ++(driver_calls.*Count);
    const double begin = steady_seconds();
    const CUresult result = real(arguments...);
    if (Count == &DriverCalls::takes) driver_calls.takes_us += 1e6 * (steady_seconds() - begin);
    return result;
  }
  static void count_in(DriverApi& api) { real = std::exchange(api.*Function, &call); }
};

void count_driver_calls() {
  // The table of the process is no constant; all others only read it.
  auto& api = const_cast<DriverApi&>(*take(load_driver()));
  constexpr auto kLoads = &DriverCalls::loads;
  constexpr auto kWaits = &DriverCalls::waits;
  Counted<&DriverApi::library_load_data, kLoads>::count_in(api);
  Counted<&DriverApi::library_unload, kWaits>::count_in(api);
  Counted<&DriverApi::stream_synchronize, kWaits>::count_in(api);
  Counted<&DriverApi::mem_alloc, kWaits>::count_in(api);
  Counted<&DriverApi::mem_free, kWaits>::count_in(api);
  Counted<&DriverApi::mem_host_alloc, kWaits>::count_in(api);
  Counted<&DriverApi::mem_free_host, kWaits>::count_in(api);
  Counted<&DriverApi::mem_map, kWaits>::count_in(api);
  Counted<&DriverApi::mem_unmap, kWaits>::count_in(api);
  Counted<&DriverApi::mem_alloc_from_pool_async, &DriverCalls::takes>::count_in(api);
}

/// A problem that is asked for, and the arguments of its launch.
struct Call {
  Problem problem;
  std::vector<Arg> arguments = {};  ///< none without a GPU
};

/// The GPU with the memory of all calls, in which tensors of one name share a buffer. All of it is
/// zero at first, page tables too; lengths are set.
class Gpu {
 public:
  Gpu() : api_(*take(load_driver())), context_(take(primary_context(api_, 0))) {
    check({"cuCtxPushCurrent", api_.context_push_current(context_)});
    check({"cuStreamCreate", api_.stream_create(&stream_, CU_STREAM_NON_BLOCKING)});
  }

  CUstream stream() const { return stream_; }

  /// Makes room for the tensors of a problem.
  void reserve(const BoundProblem& problem) {
    for (const TensorShape& shape : problem.shapes()) {
      std::int64_t& bytes = bytes_[name_of(problem, shape)];
      bytes = std::max(bytes, shape.bytes());
    }
  }
  void allocate() {
    bytes_[kLengths] = kMostCalls * kBytesOfLengths;
    for (const auto& [name, bytes] : bytes_) {
      const auto size = static_cast<std::size_t>(bytes);
      check({"cuMemAlloc", api_.mem_alloc(&addresses_[name], size)});
      check({"cuMemsetD8Async", api_.memset_d8_async(addresses_[name], 0, size, stream_)});
    }
  }
  /// Sets the arguments of the calls of one step. Every sequence of a call has its problem's
  /// length.
  void place(std::vector<Call>& calls, const ServiceCore& core) {
    std::vector<std::int32_t> lengths(calls.size() * kBytesOfLengths / sizeof(std::int32_t));
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const BoundProblem problem = take(core.bind(calls[i].problem));
      const std::size_t place = i * kBytesOfLengths;
      for (const TensorShape& shape : problem.shapes()) {
        CUdeviceptr address = addresses_.at(name_of(problem, shape));
        if (shape.name == kLengths) {
          if (shape.bytes() > static_cast<std::int64_t>(kBytesOfLengths)) {
            fail({ErrorCode::invalid_argument,
                  concat(problem.text(), ": more than 64 sequences have no room")});
          }
          address += place;
          const auto first = lengths.begin() + static_cast<std::ptrdiff_t>(place / 4);
          std::fill_n(first, shape.extent[0],
                      static_cast<std::int32_t>(*problem.scope().find("kv_len")));
        }
        calls[i].arguments.emplace_back(static_cast<unsigned long long>(address));
      }
    }
    check({"cuMemcpyHtoDAsync",
           api_.memcpy_htod_async(addresses_[kLengths], lengths.data(),
                                  lengths.size() * sizeof(std::int32_t), stream_)});
    wait();
  }
  void wait() { check({"cuStreamSynchronize", api_.stream_synchronize(stream_)}); }

 private:
  static constexpr const char* kLengths = "kv_lengths";
  static constexpr std::size_t kMostCalls = 32;
  static constexpr std::size_t kBytesOfLengths = 256;  ///< of 64 sequences

  static std::string name_of(const BoundProblem& problem, const TensorShape& shape) {
    return shape.name == kLengths ? kLengths : concat(problem.operation().name, ' ', shape.name);
  }
  void check(const DriverStatus& status) const {
    if (!status) fail(driver_error(api_, status));
  }

  const DriverApi& api_;
  CUcontext context_;
  CUstream stream_ = nullptr;
  std::map<std::string, std::int64_t> bytes_;
  std::map<std::string, CUdeviceptr> addresses_;
};

/// Returns the problem of a family with these sizes.
Problem sized(const RangedProblem& family, const std::map<std::string, std::int64_t>& sizes) {
  const Problem& last = family.last().problem();
  Problem::Dims dims = last.dims();
  for (auto& [name, size] : dims) {
    if (const auto given = sizes.find(name); given != sizes.end()) size = given->second;
  }
  return Problem::make(last.operation(), std::move(dims), last.flags());
}

/// Returns the problems of a step: attention and its caches for the prompt and for the batch that
/// decodes, and all others for the tokens of both.
std::vector<Call> calls_of(const ServerStep& step, const std::vector<RangedProblem>& layer) {
  std::vector<Call> calls;
  for (const RangedProblem& family : layer) {
    if (find_named(family.free(), "q_len") != nullptr) {
      if (step.prompt == 0) continue;
      calls.push_back({sized(family, {{"q_len", step.prompt}, {"kv_len", step.context}})});
    } else if (find_named(family.free(), "batch") != nullptr) {
      if (step.decoding == 0) continue;
      calls.push_back({sized(family, {{"batch", step.decoding}, {"kv_len", step.longest}})});
    } else {
      calls.push_back({sized(family, {{family.free().front().name, step.tokens()}})});
    }
  }
  return calls;
}

/// The host's time of a step, and what parts of it took.
struct StepTime {
  HostTime all;
  double find_us = 0;
  double load_us = 0;  ///< the plan, and what the driver is asked for it
  double launch_us = 0;
  double takes_us = 0;  ///< of the launches: workspaces from the pool
};

/// A service whose families are loaded and that is sealed, and the counts of what it then does.
class SealedServer {
 public:
  SealedServer(ServiceCore& core, Gpu* gpu) : core_(core), gpu_(gpu) {}

  /// Loads the families, whose problems may be asked for from then on.
  void open(const std::vector<RangedProblem>& families) {
    const HostTime begin = HostTime::now();
    std::vector<Problem> problems;
    for (const RangedProblem& family : families) {
      problems.push_back(take(Problem::parse(family.text())));
      take(core_.ask_family(problems.back()));  // all are made at the same time
    }
    for (const Problem& problem : problems) {
      if (const Result<void> loaded = core_.prewarm_family(problem); !loaded) fail(loaded.error());
    }
    std::printf("%zu families after %.1f s\n", families.size(), (HostTime::now() - begin).us / 1e6);
    core_.seal(SealMode::error);
    before_ = core_.metrics();
  }

  /// Asks for all kernels and launches them, or makes their plans.
  StepTime run(const std::vector<Call>& calls) {
    StepTime took;
    const DriverCalls before = driver_calls;
    const HostTime begin = HostTime::now();
    double last = steady_seconds();
    const auto add = [&last](double& us) {
      const double now = steady_seconds();
      us += 1e6 * (now - std::exchange(last, now));
    };
    for (const Call& call : calls) {
      std::optional<BorrowedKernel> found = core_.find_in_memory(call.problem);
      looked_up_ += found ? 0 : 1;
      const Result<BorrowedKernel> kernel =
          found ? *std::move(found) : core_.borrow_best_kernel(call.problem, std::nullopt);
      add(took.find_us);
      if (!kernel) {
        refuse(kernel.error());
        continue;
      }
      static_cast<void>(kernel->workspace_bytes());
      add(took.load_us);
      if (gpu_ == nullptr) continue;
      const Result<void> launched =
          kernel->launch(gpu_->stream(), call.arguments.data(), call.arguments.size());
      if (!launched) refuse(launched.error());
      add(took.launch_us);
    }
    took.all = HostTime::now() - begin;
    took.takes_us = driver_calls.takes_us - before.takes_us;
    calls_.loads += driver_calls.loads - before.loads;
    calls_.waits += driver_calls.waits - before.waits;
    calls_.takes += driver_calls.takes - before.takes;
    return took;
  }

  /// Adds the counts to a row, and prints them. Returns true if there was nothing to count.
  bool report(Json& row) const {
    const Metrics after = core_.metrics();
    const std::pair<const char*, std::int64_t> counts[] = {
        {"refused", refused_},
        {"looked_up", looked_up_},
        {"compiles",
         static_cast<std::int64_t>(after.compiles - before_.compiles + after.compiles_after_ready)},
        {"loads",
         static_cast<std::int64_t>(after.loaded_kernels - before_.loaded_kernels) + calls_.loads},
        {"waits", calls_.waits}};
    row["takes"] = calls_.takes;
    bool is_clean = true;
    for (const auto& [name, count] : counts) {
      row[name] = count;
      is_clean = is_clean && count == 0;
      std::printf("%s %lld  ", name, static_cast<long long>(count));
    }
    std::printf("\n");
    return is_clean;
  }

 private:
  void refuse(const Error& error) {
    if (refused_++ == 0) std::printf("%s\n", error.message.c_str());
  }

  ServiceCore& core_;
  Gpu* gpu_;
  Metrics before_;
  DriverCalls calls_;
  std::int64_t refused_ = 0;
  std::int64_t looked_up_ = 0;  ///< not answered from memory
};

Json spread_json(std::string_view what, const std::vector<double>& us) {
  Json json;
  std::printf("%-12.*s", static_cast<int>(what.size()), what.data());
  for (const auto& [name, share] :
       {std::pair{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1.0}}) {
    json[name] = percentile(us, share);
    std::printf("  %s %8.1f", name, percentile(us, share));
  }
  std::printf("  us\n");
  return json;
}

int run(int argc, const char* const* argv) {
  if (lacks_arguments(argc, argv, kUsage)) return kCannotRun;
  expect_options(argc, argv, kUsage);
  const auto recorded = option_value(argc, argv, "--recorded");
  const std::string list = recorded ? *recorded : text_option(argc, argv, "--layer");
  const auto core =
      take(ServiceCore::open({.cache = text_option(argc, argv, "--cache"),
                              .sku = option_value(argc, argv, "--sku").value_or("")}));
  BenchJson json = take(BenchJson::open(
      option_value(argc, argv, "--json").value_or(""), "server_steps", command_line(argc, argv),
      core->has_device() ? Json{{"name", core->profile().name},
                                {"uuid", core->identity().uuid},
                                {"driver", core->identity().driver_version}}
                         : cpu_device()));
  std::vector<RangedProblem> families;
  std::vector<std::vector<Call>> steps;
  if (recorded) {
    std::vector<BoundProblem> problems;
    for (const WorklistEntry& entry : take(read_worklist(list))) {
      problems.push_back(take(core->bind(entry.problem)));
      steps.push_back({{problems.back().problem()}});
    }
    for (const std::string& family : join_families(problems)) {
      families.push_back(take(core->site().bind_family(take(Problem::parse(family)))));
    }
  } else {
    for (const WorklistEntry& entry : take(read_worklist(list))) {
      families.push_back(take(core->site().bind_family(entry.problem)));
    }
    SimulatedServer simulated(static_cast<std::uint64_t>(integer_option(argc, argv, "--seed", 1)));
    const auto count = static_cast<std::size_t>(integer_option(argc, argv, "--steps", 10'000));
    while (steps.size() < count) steps.push_back(calls_of(simulated.next(), families));
  }

  std::optional<Gpu> gpu;
  if (core->has_device()) {
    count_driver_calls();
    gpu.emplace();
    for (const std::vector<Call>& calls : steps) {
      for (const Call& call : calls) gpu->reserve(take(core->bind(call.problem)));
    }
    gpu->allocate();
  }
  SealedServer server(*core, gpu ? &*gpu : nullptr);
  server.open(families);

  std::vector<StepTime> new_times;
  std::vector<StepTime> seen_times;
  std::set<std::string> seen;
  std::size_t calls = 0;
  for (std::vector<Call>& step : steps) {
    if (gpu) gpu->place(step, *core);
    new_times.push_back(server.run(step));
    if (gpu) gpu->wait();
    seen_times.push_back(server.run(step));
    if (gpu) gpu->wait();
    calls += step.size();
    for (const Call& call : step) seen.insert(call.problem.text());
  }

  Json row{{"problem", std::filesystem::path(list).filename().string()},
           {"steps", steps.size()},
           {"calls", calls},
           {"sizes", seen.size()},
           {"families", families.size()}};
  std::printf("%zu steps, %zu calls, %zu sizes of %zu families\n", steps.size(), calls, seen.size(),
              families.size());
  const auto add_spread = [&](const char* name, const char* what, const auto& us_of) {
    std::vector<double> us;
    for (std::size_t i = 0; i < steps.size(); ++i) us.push_back(us_of(new_times[i], seen_times[i]));
    row[name] = spread_json(what, us);
  };
  add_spread("new_us", "new", [](const auto& first, const auto&) { return first.all.us; });
  add_spread("seen_us", "seen", [](const auto&, const auto& second) { return second.all.us; });
  add_spread("difference_us", "difference",
             [](const auto& first, const auto& second) { return (first.all - second.all).us; });
  add_spread("difference_of_thread_us", "of thread", [](const auto& first, const auto& second) {
    return (first.all - second.all).of_thread_us;
  });
  // The difference again, by what the time was for.
  for (const auto& [name, what, part] :
       {std::tuple{"difference_find_us", "of find", &StepTime::find_us},
        {"difference_load_us", "of load", &StepTime::load_us},
        {"difference_launch_us", "of launch", &StepTime::launch_us},
        {"difference_takes_us", "of takes", &StepTime::takes_us}}) {
    add_spread(name, what,
               [&](const auto& first, const auto& second) { return first.*part - second.*part; });
  }
  const bool is_clean = server.report(row);
  if (const auto added = json.add(std::move(row)); !added) fail(added.error());
  return is_clean ? 0 : 1;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
