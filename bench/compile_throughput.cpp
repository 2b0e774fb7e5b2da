// Measures how many candidates are compiled per second by 1 to all cores, and how long the first of
// them takes meanwhile: in processes, and on threads of one process. Also the time of a single
// compile. NVRTC's own disk cache is off, as always. Needs no GPU, and the tool beside it.

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "bench/common/bench_json.h"
#include "bench/common/command.h"
#include "compile/compile_pool.h"
#include "compile/process_compiler.h"
#include "compile/render.h"
#include "support/processes/find_tool.h"
#include "support/processes/threads.h"
#include "support/steady_seconds.h"
#include "support/text.h"

namespace kernwright {
namespace {

constexpr const char* kUsage = "usage: compile_throughput [--json FILE]\n";
constexpr const char* kProfile = "h200";
/// How many different candidates of a template are compiled, spread over its space.
constexpr std::size_t kCandidates = 16;
/// The least work of each thread: compiles, and seconds of single ones.
constexpr double kRounds = 5;
constexpr double kSecondsPerCore = 1.5;
/// More threads of one process than this gain nothing.
constexpr int kMostThreads = 16;

struct Subject {
  const char* kernel_template;
  double bar_seconds;  ///< one compile on one core must take less; 0: no bar
};
constexpr Subject kSubjects[] = {
    {"vector_add/vectorized", 0.060}, {"matmul/tiled", 0}, {"matmul/persistent_wave", 0.5}};

/// Makes requests for candidates of the operations' examples.
class Requests {
 public:
  Requests() : catalog_(take(Catalog::load({}))), profile_(take(find_profile(kProfile))) {}

  CompileRequest of_default(const char* name) const {
    const KernelTemplate& made = *take(catalog_->kernel_template(name));
    return take(request(made, made.default_configuration));
  }

  /// `kCandidates` different requests, spread over the template's space by the golden ratio: the
  /// same on every machine.
  std::vector<CompileRequest> spread(const char* name) const {
    const KernelTemplate& made = *take(catalog_->kernel_template(name));
    std::vector<CompileRequest> list;
    std::set<Digest> seen;
    const double size = static_cast<double>(made.space.size());
    for (double step = 0; list.size() < kCandidates && step < size; ++step) {
      const double fraction = std::fmod(step * 0.6180339887498949, 1.0);
      const auto index = static_cast<std::int64_t>(fraction * size);
      Result<CompileRequest> next = request(made, made.space.at(index));
      if (next && seen.insert(next->digest({})).second) list.push_back(std::move(*next));
    }
    return list;
  }

 private:
  Result<CompileRequest> request(const KernelTemplate& made, const Configuration& point) const {
    const Operation& operation = *take(catalog_->operation(made.operation));
    const Result<Candidate> candidate = make_candidate(
        made, take(BoundProblem::bind(operation, operation.example)), point, profile_);
    if (!candidate) return candidate.error();
    return render(*candidate, *catalog_, profile_.sm_arch);
  }

  std::shared_ptr<const Catalog> catalog_;
  DeviceProfile profile_;
};

/// Median seconds of seven compiles, after one that warms up.
double single_compile_seconds(Compiler& compiler, const CompileRequest& request) {
  take(compiler.compile(request));
  std::array<double, 7> samples{};
  for (double& seconds : samples) seconds = take(compiler.compile(request)).seconds;
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

struct Load {
  std::size_t compiles = 0;
  double per_second = 0;     ///< while all are busy
  double first_seconds = 0;  ///< until the one that was asked for first is there
  double each_seconds = 0;   ///< that a compile took meanwhile, the mean
};

/// Compiles at least `kRounds` of the candidates, and `kSecondsPerCore` of them, for each of
/// `count` threads. A pool begins with neither threads nor processes.
Load compile_all(std::unique_ptr<Compiler> compiler, const std::vector<CompileRequest>& candidates,
                 double single_seconds, int count) {
  const auto at_once = static_cast<std::size_t>(count);
  const double rounds = std::max(kRounds, std::ceil(kSecondsPerCore / single_seconds));
  Load load;
  load.compiles = std::max(candidates.size(), static_cast<std::size_t>(rounds) * at_once);
  CompilePool pool(std::move(compiler), {.threads = count});
  std::vector<std::pair<CompileRequest, std::string>> requests;
  for (std::size_t i = 0; i < load.compiles; ++i) {
    CompileRequest request = candidates[i % candidates.size()];
    request.source += concat("// ", i / candidates.size(), '\n');  // equal ones are compiled once
    std::string digest = take(pool.digest(request));
    requests.emplace_back(std::move(request), std::move(digest));
  }

  const auto start = std::chrono::steady_clock::now();
  std::vector<Build> builds;
  for (auto& [request, digest] : requests) {
    builds.push_back(pool.submit(std::move(request), std::move(digest)));
  }
  // The rate is that between the first and the last moment at which every thread has had a compile
  // and still has one.
  std::size_t from = 0;
  double from_seconds = 0;
  std::size_t to = 0;
  double to_seconds = 0;
  while (to + at_once < load.compiles) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    to = static_cast<std::size_t>(pool.compiled());
    to_seconds = seconds_since(start);
    if (load.first_seconds == 0 && builds.front().ended()) load.first_seconds = to_seconds;
    if (from < at_once) {
      from = to;
      from_seconds = to_seconds;
    }
  }
  load.per_second = static_cast<double>(to - from) / (to_seconds - from_seconds);
  double sum = 0;
  for (const Build& build : builds) sum += take(build.get())->seconds;
  load.each_seconds = sum / static_cast<double>(load.compiles);
  return load;
}

/// 1, 2, 4, ... and all cores.
std::vector<int> counts_up_to(int cores) {
  std::vector<int> counts;
  for (int count = 1; count < cores; count *= 2) counts.push_back(count);
  counts.push_back(cores);
  return counts;
}

int run(int argc, const char* const* argv) {
  expect_options(argc, argv, kUsage);
  const std::shared_ptr<Compiler> compiler = make_toolkit_compiler();
  const std::string identity = take(compiler->identity());
  const std::filesystem::path tool = take(find_tool({}));
  BenchJson json =
      take(BenchJson::open(option_value(argc, argv, "--json").value_or(""), "compile_throughput",
                           command_line(argc, argv), cpu_device()));
  const Requests requests;
  const auto record = [&](nlohmann::ordered_json row) {
    row["compiler"] = identity.substr(0, identity.rfind(' '));
    if (const Result<void> added = json.add(std::move(row)); !added) fail(added.error());
  };
  const int cores = available_cores();

  for (const auto& [name, bar_seconds] : kSubjects) {
    const double single = single_compile_seconds(*compiler, requests.of_default(name));
    std::printf("%s: one compile %.1f ms", name, single * 1e3);
    if (bar_seconds > 0) std::printf(" (bar %.0f ms)", bar_seconds * 1e3);
    std::printf("\n");
    record({{"problem", concat("one compile of ", name)},
            {"seconds", single},
            {"bar_seconds", bar_seconds}});

    const std::vector<CompileRequest> candidates = requests.spread(name);
    double rate_of_one = 0;
    const auto measure = [&](const char* where, std::unique_ptr<Compiler> made, int count) {
      const Load load = compile_all(std::move(made), candidates, single, count);
      if (rate_of_one == 0) rate_of_one = load.per_second;
      const double speedup = load.per_second / rate_of_one;
      std::printf(
          "%4d %-9s %5zu compiles, %7.1f /s, speedup %5.2f; first %6.0f ms, each %6.0f ms\n", count,
          where, load.compiles, load.per_second, speedup, load.first_seconds * 1e3,
          load.each_seconds * 1e3);
      std::fflush(stdout);
      record({{"problem", concat(name, ", ", count, ' ', where)},
              {"count", count},
              {"where", where},
              {"compiles", load.compiles},
              {"candidates_per_second", load.per_second},
              {"speedup", speedup},
              {"first_seconds", load.first_seconds},
              {"each_seconds", load.each_seconds}});
    };
    for (const int count : counts_up_to(cores)) {
      measure("processes", make_toolkit_compiler_in_processes(tool), count);
    }
    measure("threads", make_toolkit_compiler(), std::min(cores, kMostThreads));
  }
  return 0;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
