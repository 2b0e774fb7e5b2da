// Times a fresh process from its start to its first launch. Everything that it needs is in a
// read-only directory: an installed bundle. Each run is a process of this program, without
// variables that name a directory to write to. It must serve from the directory, not load NVRTC or
// nvJitLink, and not change the directory.

#include "bench/common/cold_start.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/common/bench_json.h"
#include "bench/common/command.h"
#include "device/cuda/cuda_device.h"
#include "device/driver/handles.h"
#include "device/program/context_memory.h"
#include "support/files.h"
#include "support/processes/subprocess.h"
#include "support/text.h"
#include <kernwright/service.h>

namespace kernwright {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUsage =
    "usage: cold_start --cache DIR --problem TEXT [--runs N] [--json FILE]\n";
/// The first word of a run's own command line.
constexpr std::string_view kRun = "run";
constexpr double kRunSeconds = 60;
constexpr double kBarMs = 8;
/// The value of every byte of outputs before the launch. It makes tiny numbers, which no kernel
/// writes to all outputs for inputs of zeros.
constexpr unsigned char kUntouched = 1;

std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// The caller's side of a launch: inputs and workspace of zeros, outputs that show whether they
/// were written.
class Buffers {
 public:
  Buffers(const DriverApi& api, CUstream stream, const Kernel& kernel)
      : api_(api), stream_(stream) {
    for (const ArgumentInfo& argument : kernel.arguments()) {
      if (argument.is_scalar) continue;  // it gets its default
      std::int64_t elements = 1;
      for (const std::int64_t extent : argument.extent) elements *= extent;
      const std::int64_t bytes = bytes_of(elements, argument.dtype);
      const DevicePointer address = allocate(bytes, argument.is_output ? kUntouched : 0);
      arguments_.emplace_back(address);
      if (argument.is_output && bytes > 0) outputs_.push_back(address);
    }
    workspace_ = reinterpret_cast<void*>(allocate(kernel.workspace_bytes(), 0));
    check({"cuStreamSynchronize", api_.stream_synchronize(stream_)});
  }

  Result<void> launch(const Kernel& kernel) const {
    return kernel.launch(stream_, arguments_.data(), arguments_.size(), workspace_);
  }

  /// Returns whether the launch has changed the first byte of an output.
  bool written() const {
    return std::any_of(outputs_.begin(), outputs_.end(), [this](DevicePointer output) {
      unsigned char byte = kUntouched;
      check({"cuMemcpyDtoHAsync", api_.memcpy_dtoh_async(&byte, output, 1, stream_)});
      check({"cuStreamSynchronize", api_.stream_synchronize(stream_)});
      return byte != kUntouched;
    });
  }

 private:
  void check(const DriverStatus& status) const {
    if (!status) fail(driver_error(api_, status));
  }
  DevicePointer allocate(std::int64_t bytes, unsigned char fill) {
    memory_.push_back(take(ContextMemory::allocate(api_, bytes)));
    const DevicePointer address = memory_.back().address();
    if (bytes > 0) {
      check({"cuMemsetD8Async",
             api_.memset_d8_async(address, fill, static_cast<std::size_t>(bytes), stream_)});
    }
    return address;
  }

  const DriverApi& api_;
  CUstream stream_;
  std::vector<ContextMemory> memory_;
  std::vector<DevicePointer> outputs_;
  std::vector<Arg> arguments_;
  void* workspace_ = nullptr;
};

/// Does one run, "run DIR PROBLEM NANOSECONDS"; the last is the time of its start.
int run_once(ColdStart start, char** argv) {
  start.spawned = std::stoll(argv[4]);
  const auto check = [](const DriverApi& api, const DriverStatus& status) {
    if (!status) fail(driver_error(api, status));
  };
  const DriverApi& api = *take(load_driver());
  const CUcontext context = take(primary_context(api, 0));
  const ContextScope scope(api, context);
  check(api, scope.status());
  CUstream made = nullptr;
  check(api, {"cuStreamCreate", api.stream_create(&made, CU_STREAM_NON_BLOCKING)});
  const StreamHandle stream(api, made);
  start.context = now_ns();

  const Service service = take(Service::open({.cache = argv[2], .min_match = Match::recheck}));
  start.opened = now_ns();

  const Kernel kernel = take(service.get_best_kernel(take(Problem::parse(argv[3]))));
  start.served = now_ns();

  const Buffers buffers(api, stream.get(), kernel);
  start.buffers = now_ns();

  const Result<void> launched = buffers.launch(kernel);
  start.launched = now_ns();
  if (!launched) fail(launched.error());
  check(api, {"cuStreamSynchronize", api.stream_synchronize(stream.get())});
  start.finished = now_ns();

  const KernelSummary& summary = kernel.summary();
  start.kernel = concat(summary.kernel_template, " ", summary.configuration);
  start.match = to_string(summary.match);
  if (!buffers.written()) {
    fail({ErrorCode::internal, concat(start.kernel, " has left its outputs as they were")});
  }
  for (const std::string& library : mapped_compilers(take(read_file("/proc/self/maps")))) {
    fail({ErrorCode::internal, concat("a process that only serves has mapped ", library)});
  }
  Channel channel = take(inherited_channel());
  if (auto sent = channel.send(to_line(start)); !sent) fail(sent.error());
  return 0;
}

ColdStart start_one(const std::string& cache, const std::string& problem) {
  const fs::path program = fs::read_symlink("/proc/self/exe");
  Subprocess process = take(Subprocess::spawn(
      {.program = program,
       .arguments = {std::string(kRun), cache, problem, std::to_string(now_ns())},
       .removed_variables = {"HOME", "KERNWRIGHT_CACHE", "TMPDIR", "XDG_CACHE_HOME"}}));
  const Deadline deadline = deadline_in(kRunSeconds);
  const Result<Message> line = process.channel().receive(deadline);
  const auto ended = process.wait(deadline);
  if (!line || !ended || ended->code != 0 || ended->signal != 0) {
    fail(
        {ErrorCode::internal, concat("a run failed: ", ended ? ended->text() : "no end in a minute",
                                     "; ", process.last_words())});
  }
  return take(read_cold_start(line->text));
}

using Files = std::map<fs::path, fs::file_time_type>;

Files files_below(const fs::path& folder) {
  Files files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->is_regular_file()) files.emplace(entry->path(), entry->last_write_time());
  }
  if (error) fail({ErrorCode::io, concat(folder.native(), ": ", error.message())});
  return files;
}

/// Ends the program if a run has added or changed a file. (A lookup without an exact match writes
/// to the log if it can.)
void expect_unchanged(const Files& before, const Files& after, const std::string& match) {
  for (const auto& file : after) {
    const auto known = before.find(file.first);
    if (known != before.end() && known->second == file.second) continue;
    fail({ErrorCode::internal, concat("a run, of match ", match, ", wrote ", file.first.native())});
  }
}

struct Stage {
  const char* name;
  const char* what;
  std::int64_t (*ns)(const ColdStart&);
};
constexpr Stage kStages[] = {
    {"start", "process start to main", [](const ColdStart& s) { return s.main - s.spawned; }},
    {"context", "driver, context, stream (the caller's)",
     [](const ColdStart& s) { return s.context - s.main; }},
    {"open", "Service::open", [](const ColdStart& s) { return s.opened - s.context; }},
    {"get", "get_best_kernel", [](const ColdStart& s) { return s.served - s.opened; }},
    {"buffers", "buffers (the caller's)", [](const ColdStart& s) { return s.buffers - s.served; }},
    {"launch", "first launch", [](const ColdStart& s) { return s.launched - s.buffers; }},
    {"kernel", "until the kernel has finished",
     [](const ColdStart& s) { return s.finished - s.launched; }},
    {"ours", "start to launch, less the caller's", [](const ColdStart& s) { return s.ours_ns(); }}};

/// The smallest of the sorted values such that at least `share` of them do not exceed it.
double quantile(const std::vector<double>& sorted, double share) {
  const double rank = std::ceil(share * static_cast<double>(sorted.size()));
  return sorted[static_cast<std::size_t>(rank) - 1];
}

int run(int argc, const char* const* argv) {
  if (lacks_arguments(argc, argv, kUsage)) return kCannotRun;
  expect_options(argc, argv, kUsage);
  const std::string cache = fs::absolute(text_option(argc, argv, "--cache"));
  const std::string problem = text_option(argc, argv, "--problem");
  const std::int64_t runs = integer_option(argc, argv, "--runs", 50);
  const CudaDeviceInfo info = take(describe_cuda_device(0));
  BenchJson json = take(BenchJson::open(option_value(argc, argv, "--json").value_or(""),
                                        "cold_start", command_line(argc, argv),
                                        {{"name", info.profile.name},
                                         {"uuid", info.identity.uuid},
                                         {"driver", info.identity.driver_version}}));
  const Files before = files_below(cache);
  std::vector<ColdStart> starts;
  for (std::int64_t i = 0; i < runs; ++i) starts.push_back(start_one(cache, problem));
  const ColdStart& first = starts.front();
  expect_unchanged(before, files_below(cache), first.match);

  nlohmann::ordered_json row = {
      {"problem", problem}, {"kernel", first.kernel}, {"match", first.match}, {"runs", runs}};
  std::printf("%s: %s, %s\n%-40s %8s %8s %8s\n", problem.c_str(), first.kernel.c_str(),
              first.match.c_str(), "ms", "p50", "p95", "max");
  double ours_p95 = 0;  // of the last stage
  for (const Stage& stage : kStages) {
    std::vector<double> ms;
    for (const ColdStart& start : starts) ms.push_back(static_cast<double>(stage.ns(start)) / 1e6);
    std::sort(ms.begin(), ms.end());
    const double p50 = quantile(ms, 0.5);
    const double p95 = quantile(ms, 0.95);
    std::printf("%-40s %8.3f %8.3f %8.3f\n", stage.what, p50, p95, ms.back());
    row[concat(stage.name, "_ms")] = {{"p50", p50}, {"p95", p95}, {"max", ms.back()}};
    ours_p95 = p95;
  }
  row["bar_ms"] = kBarMs;
  row["holds"] = ours_p95 <= kBarMs;
  if (auto added = json.add(std::move(row)); !added) return report(added.error());
  return 0;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) {
  kernwright::ColdStart start;
  start.main = kernwright::now_ns();
  if (argc == 5 && argv[1] == kernwright::kRun) return kernwright::run_once(start, argv);
  return kernwright::run(argc, argv);
}
