// Records a whole space on a GPU: every valid configuration of every template for one problem, with
// its checks, raw samples and clocks, and with probe kernels in between. A recording that was
// stopped, or ran out of time, continues when it is started again. Exit status 0: the space is
// complete. 3: some configurations are left.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "bench/common/bench_json.h"
#include "bench/common/command.h"
#include "bench/simulation/record_space.h"
#include "cache/stores/artifact_store.h"
#include "compile/compile_pool.h"
#include "compile/compiler.h"
#include "device/cuda/cuda_device.h"
#include "support/steady_seconds.h"
#include "support/text.h"
#include "tuner/candidates/candidate_list.h"
#include "tuner/measure/device_runner.h"
#include "tuner/session/compile_ahead.h"

namespace kernwright {
namespace {

constexpr const char* kUsage =
    "usage: record_landscape --problem \"matmul m=4096 n=4096 k=4096 dtype=bf16\"\n"
    "                        --out FILE.jsonl.gz [--samples 32] [--sample-ms 1.5] [--limit N]\n"
    "                        [--seconds S] [--threads T]\n";
constexpr int kLeft = 3;
constexpr int kMinSamples = 32;
/// Loading, checking and building of one candidate, for the estimate.
constexpr double kVisitSeconds = 0.015;
constexpr std::size_t kReportEvery = 50;

/// "matmul_m4096_n4096_k4096_bf16" of a file's name.
std::string space_name(const std::filesystem::path& path) {
  std::string name = path.filename().string();
  return name.substr(0, name.find(".jsonl"));
}

int run(int argc, const char* const* argv) {
  if (lacks_arguments(argc, argv, kUsage)) return kCannotRun;
  expect_options(argc, argv, kUsage);
  const std::filesystem::path path = text_option(argc, argv, "--out");
  const Problem problem = take(Problem::parse(text_option(argc, argv, "--problem")));
  RecordingOptions options;
  options.samples = static_cast<int>(number_option(argc, argv, "--samples", kMinSamples));
  options.seconds = number_option(argc, argv, "--seconds", options.seconds);
  options.clock_seconds = steady_seconds;
  if (option_value(argc, argv, "--limit")) {
    options.limit = static_cast<std::size_t>(number_option(argc, argv, "--limit", 1));
  }
  DeviceRunnerOptions runner_options;
  runner_options.sample_ms = number_option(argc, argv, "--sample-ms", runner_options.sample_ms);
  CompilePoolOptions pool_options;
  if (option_value(argc, argv, "--threads")) {
    pool_options.threads = static_cast<int>(number_option(argc, argv, "--threads", 1));
  }

  const std::unique_ptr<Device> device = take(open_cuda_device(0));
  CompilePool pool(make_toolkit_compiler(), pool_options);
  const std::string compiler = take(pool.compiler().identity());
  const auto catalog = take(Catalog::load({}));
  const auto data_ops = take(make_device_data_ops(*device, pool));
  const BoundProblem bound = take(catalog->bind(problem));
  const CandidateList list = take(enumerate_candidates(*catalog, bound, device->profile()));
  for (const std::string& note : list.notes) std::printf("%s\n", note.c_str());

  LandscapeFile file = take(LandscapeFile::open(path,
                                                {.space = space_name(path),
                                                 .device = device->profile().name,
                                                 .kernel = std::string(problem.operation()),
                                                 .problem = bound.text(),
                                                 .policy = runner_options.policy.text(),
                                                 .compiler = compiler,
                                                 .sample_ms = runner_options.sample_ms},
                                                list.candidates, list.default_index));
  const std::size_t all = std::min(list.candidates.size(), options.limit);
  const double each = options.samples * runner_options.sample_ms * 1e-3 + kVisitSeconds;
  std::printf(
      "%s: %zu configurations, %zu recorded, about %.0f s of GPU time to go, more where a "
      "unit takes longer than a sample\n",
      bound.text().c_str(), list.candidates.size(), file.recorded(),
      each * static_cast<double>(all - std::min(all, file.recorded())));
  std::fflush(stdout);

  const auto runner =
      take(open_device_runner(*device, *data_ops, bound, *catalog, pool, runner_options));
  // Compile times are recorded, so the pool has no cache.
  CompileAhead ahead(list.candidates, *catalog, device->profile().sm_arch, pool);
  double best_us = std::numeric_limits<double>::infinity();
  std::size_t failed = 0;
  const double start = steady_seconds();
  options.progress = [&](std::size_t candidate, const LandscapeEntry& entry) {
    Measurement measured;
    for (const Sample& sample : entry.samples) measured.samples_us.push_back(sample.us);
    if (entry.outcome != Outcome::ok) {
      ++failed;
      std::printf("%s: %s: %s\n", list.candidates[candidate].id().c_str(),
                  std::string(to_string(entry.outcome)).c_str(), entry.detail.c_str());
    } else {
      best_us = std::min(best_us, measured.median_us());
    }
    if (file.recorded() % kReportEvery == 0) {
      std::printf("%zu of %zu, %zu failed, best %.2f us, %.0f s\n", file.recorded(), all, failed,
                  best_us, steady_seconds() - start);
    }
    std::fflush(stdout);
  };
  const std::size_t left = take(record_space(list.candidates, list.predicted_us, list.default_index,
                                             device->profile(), ahead, *runner, file, options));
  std::printf("%zu recorded in all, %zu failed this time, %zu left, %.0f s\n", file.recorded(),
              failed, left, steady_seconds() - start);
  if (left > 0) return kLeft;
  if (auto done = file.finish(); !done) fail(done.error());
  return 0;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
