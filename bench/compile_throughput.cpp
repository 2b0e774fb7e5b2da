// Measures how many of a fixed set of candidates are compiled per second, with 1 to all cores, and
// the time of a single compile. NVRTC's own disk cache is off, as always. Needs no GPU.

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <set>
#include <thread>
#include <vector>

#include "bench/common/bench_json.h"
#include "bench/common/command.h"
#include "compile/compile_pool.h"
#include "compile/render.h"
#include "support/text.h"

namespace kernwright {
namespace {

constexpr const char* kUsage = "usage: compile_throughput [--json FILE]\n";
constexpr const char* kTemplates[] = {"vector_add/vectorized", "matmul/tiled",
                                      "matmul/persistent_wave"};
constexpr std::size_t kPerTemplate = 32;
constexpr const char* kProfile = "h200";

/// One compile on one core must take less.
struct Bar {
  const char* kernel_template;
  double seconds;
};
constexpr Bar kBars[] = {{"vector_add/vectorized", 0.060}, {"matmul/persistent_wave", 0.5}};

/// Makes requests for candidates of the operations' examples.
class Requests {
 public:
  Requests() : catalog_(take(Catalog::load({}))), profile_(take(find_profile(kProfile))) {}

  Result<CompileRequest> request(const KernelTemplate& made, const Configuration& point) const {
    const Operation& operation = *take(catalog_->operation(made.operation));
    const Result<Candidate> candidate = make_candidate(
        made, take(BoundProblem::bind(operation, operation.example)), point, profile_);
    if (!candidate) return candidate.error();
    return render(*candidate, *catalog_, profile_.sm_arch);
  }

  const KernelTemplate& named(const char* name) const {
    return *take(catalog_->kernel_template(name));
  }

  /// `kPerTemplate` different requests of each template, spread over its space by the golden ratio,
  /// the templates in turn: the same set on every machine.
  std::vector<CompileRequest> fixed_set() const {
    std::vector<std::vector<CompileRequest>> lists;
    for (const char* name : kTemplates) {
      const KernelTemplate& made = named(name);
      std::vector<CompileRequest> list;
      std::set<Digest> seen;
      const double size = static_cast<double>(made.space.size());
      for (double step = 0; list.size() < kPerTemplate && step < size; ++step) {
        const double fraction = std::fmod(step * 0.6180339887498949, 1.0);
        const auto index = static_cast<std::int64_t>(fraction * size);
        Result<CompileRequest> next = request(made, made.space.at(index));
        if (next && seen.insert(next->digest({})).second) list.push_back(std::move(*next));
      }
      lists.push_back(std::move(list));
    }
    std::vector<CompileRequest> all;
    for (std::size_t i = 0; i < kPerTemplate; ++i) {
      for (std::vector<CompileRequest>& list : lists) {
        if (i < list.size()) all.push_back(std::move(list[i]));
      }
    }
    return all;
  }

 private:
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

/// Wall seconds of all `requests` on `threads` threads.
double wall_seconds(const std::shared_ptr<Compiler>& compiler,
                    const std::vector<CompileRequest>& requests, int threads) {
  CompilePool pool(compiler, {.threads = threads});
  const auto start = std::chrono::steady_clock::now();
  std::vector<Build> futures;
  futures.reserve(requests.size());
  for (const CompileRequest& request : requests) futures.push_back(pool.submit(request));
  for (const auto& future : futures) {
    if (!future.get()) fail(future.get().error());
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// 1, 2, 4, ... and all cores.
std::vector<int> thread_counts(int cores) {
  std::vector<int> counts;
  for (int threads = 1; threads < cores; threads *= 2) counts.push_back(threads);
  counts.push_back(cores);
  return counts;
}

int run(int argc, const char* const* argv) {
  expect_options(argc, argv, kUsage);
  const std::shared_ptr<Compiler> compiler = make_toolkit_compiler();
  const std::string identity = take(compiler->identity());
  BenchJson json =
      take(BenchJson::open(option_value(argc, argv, "--json").value_or(""), "compile_throughput",
                           command_line(argc, argv), cpu_device()));
  const Requests requests;
  const auto record = [&](nlohmann::ordered_json row) {
    row["compiler"] = identity.substr(0, identity.rfind(' '));
    if (const Result<void> added = json.add(std::move(row)); !added) fail(added.error());
  };

  for (const Bar& bar : kBars) {
    const KernelTemplate& made = requests.named(bar.kernel_template);
    const double seconds =
        single_compile_seconds(*compiler, take(requests.request(made, made.default_configuration)));
    std::printf("%-24s one compile %7.1f ms (bar %.0f ms)\n", bar.kernel_template, seconds * 1e3,
                bar.seconds * 1e3);
    record({{"problem", concat("one compile of ", bar.kernel_template)},
            {"seconds", seconds},
            {"bar_seconds", bar.seconds}});
  }

  const std::vector<CompileRequest> set = requests.fixed_set();
  double one_thread = 0;
  for (const int threads : thread_counts(static_cast<int>(std::thread::hardware_concurrency()))) {
    const double seconds = wall_seconds(compiler, set, threads);
    if (threads == 1) one_thread = seconds;
    const double rate = static_cast<double>(set.size()) / seconds;
    std::printf("%3d threads: %zu candidates in %6.2f s, %6.1f candidates/s, speedup %.2f\n",
                threads, set.size(), seconds, rate, one_thread / seconds);
    std::fflush(stdout);
    record({{"problem", concat(set.size(), " candidates, threads=", threads)},
            {"threads", threads},
            {"seconds", seconds},
            {"candidates_per_second", rate},
            {"speedup", one_thread / seconds}});
  }
  return 0;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
