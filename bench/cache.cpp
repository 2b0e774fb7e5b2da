// Times the cache: a hit, a miss, a publication and opening a directory with many records, on the
// file system of TMPDIR; and a hit in memory, compared with a map guarded by a mutex. Files were
// just written, so reads come from the page cache, as in a process that starts soon after another
// one. A cold disk adds its latency. Nothing is synced, as in normal use. `--records` is the number
// of other records in the largest directory.

#include <algorithm>
#include <benchmark/benchmark.h>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bench/common/bench_json.h"
#include "bench/common/command.h"
#include "cache/layers/tiered_cache.h"
#include "model/catalog/catalog.h"
#include "support/files.h"
#include "support/hash.h"
#include "support/text.h"
#include <kernwright/kernwright.h>

namespace kernwright {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUsage =
    "usage: cache [--records 100000] [--json FILE], and the options of Google Benchmark\n";

/// The directory of all benchmarks, which `main` removes.
fs::path& folder() {
  static fs::path path;
  return path;
}

/// A cache of its own for every benchmark.
TieredCache fresh_cache() {
  static int number = 0;
  return TieredCache(folder() / std::to_string(number++));
}

std::string digest(std::int64_t number) { return digest_of(std::to_string(number)).hex(); }

CompiledKernel kernel_of(std::int64_t bytes) {
  CompiledKernel kernel;
  kernel.bits.assign(static_cast<std::size_t>(bytes), 'x');
  kernel.target = "sm_90a";
  kernel.entries = {{"matmul_persistent_wave", {168, 0, 0, 16, 1024, 3}}};
  return kernel;
}

/// A record as large as a real one: eight configurations with forty samples each.
TuningRecord record_of(std::int64_t m) {
  RankedConfiguration ranked;
  ranked.choice = {"matmul/persistent_wave",
                   Configuration({{"BM", 128}, {"BN", 256}, {"STAGES", 4}, {"GROUP", 8}})};
  ranked.artifact = digest(0);
  for (int i = 0; i < 40; ++i) ranked.measurement.samples_us.push_back(255.1 + i / 7.0);
  TuningRecord record;
  record.key = {concat("matmul m=", m, " n=6144 k=4096 dtype=bf16"), "sm_90", "h200", {}};
  record.environment = {digest(1), "nvrtc 13.0 abcd", "580.65.06", "0.1.0"};
  record.winner = ranked;
  record.runners_up.assign(7, ranked);
  record.baseline = ranked;
  record.created = "2026-11-20T10:11:12Z";
  return record;
}

std::vector<GradedRecord> look_up(const TieredCache& cache, const RecordKey& key) {
  static const std::string today = digest(1);
  return cache
      .lookup(key, {"nvrtc 13.0 abcd", "580.65.06", "0.1.0"},
              [](std::string_view) { return today; })
      .records;
}

void artifact_hit(benchmark::State& state) {
  const TieredCache cache = fresh_cache();
  if (!cache.put_artifact(digest(0), kernel_of(state.range(0)))) state.SkipWithError("no put");
  for (auto _ : state) {
    const Lookup<CompiledKernel> kernel = cache.artifact(digest(0));
    if (!kernel) {
      state.SkipWithError("a miss");
      break;
    }
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void artifact_miss(benchmark::State& state) {
  const TieredCache cache = fresh_cache();
  if (!cache.put_artifact(digest(0), kernel_of(1))) state.SkipWithError("no put");
  for (auto _ : state) {
    if (cache.artifact(digest(1))) {
      state.SkipWithError("a hit");
      break;
    }
  }
}

void artifact_publish(benchmark::State& state) {
  const TieredCache cache = fresh_cache();
  const CompiledKernel kernel = kernel_of(state.range(0));
  std::int64_t number = 0;
  for (auto _ : state) {
    if (!cache.put_artifact(digest(number++), kernel)) {
      state.SkipWithError("no put");
      break;
    }
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

/// `range(0)` is the number of runs under the key.
void record_hit(benchmark::State& state) {
  const TieredCache cache = fresh_cache();
  for (std::int64_t run = 0; run < state.range(0); ++run) {
    if (!cache.put_record(record_of(4096))) state.SkipWithError("no put");
  }
  const RecordKey key = record_of(4096).key;
  for (auto _ : state) {
    if (look_up(cache, key).empty()) {
      state.SkipWithError("a miss");
      break;
    }
  }
}

/// `range(0)` is the number of layers, of which none has the key.
void record_miss(benchmark::State& state) {
  std::vector<fs::path> further;
  for (std::int64_t layer = 1; layer < state.range(0); ++layer) {
    const TieredCache other = fresh_cache();
    if (!other.put_record(record_of(4096))) state.SkipWithError("no put");
    further.push_back(other.root());
  }
  const TieredCache cache(fresh_cache().root(), further);
  if (!cache.put_record(record_of(4096))) state.SkipWithError("no put");
  const RecordKey key = record_of(1).key;
  for (auto _ : state) {
    if (!look_up(cache, key).empty()) {
      state.SkipWithError("a hit");
      break;
    }
  }
}

/// Each record has a key of its own, so that its folder must be made too.
void record_publish(benchmark::State& state) {
  const TieredCache cache = fresh_cache();
  std::vector<TuningRecord> records;
  for (std::int64_t i = 0; i < state.max_iterations; ++i) records.push_back(record_of(i));
  std::size_t next = 0;
  for (auto _ : state) {
    if (!cache.put_record(records[next++])) {
      state.SkipWithError("no put");
      break;
    }
  }
}

/// A process opens a directory that has `range(0)` other records, and asks for one.
void open_and_hit(benchmark::State& state) {
  static std::map<std::int64_t, fs::path> made;
  fs::path& root = made[state.range(0)];
  if (root.empty()) {
    root = fresh_cache().root();
    const RecordStore store(root);
    if (!store.put(record_of(1))) state.SkipWithError("no put");
    // The others have keys of their own, so that a listing has as many entries as there are keys.
    RecordKey key = record_of(0).key;
    for (std::int64_t i = 0; i < state.range(0); ++i) {
      key.problem = concat("matmul m=", i + 10'000'000, " n=6144 k=4096 dtype=bf16");
      if (!publish_file(store.folder(key) / "other.kwr", "x")) state.SkipWithError("no put");
    }
  }
  const RecordKey key = record_of(1).key;
  for (auto _ : state) {
    const TieredCache cache(root);
    if (look_up(cache, key).empty()) {
      state.SkipWithError("a miss");
      break;
    }
  }
}

/// A lookup of a shape that was not tuned, in a cache with `range(0)` tuned problems: a thousand
/// heights for each of many widths. Problems of the same width can answer.
void near(benchmark::State& state) {
  static const auto catalog = Catalog::load({}).value();
  static std::map<std::int64_t, fs::path> made;
  fs::path& root = made[state.range(0)];
  const auto key_of = [](std::int64_t m, std::int64_t n) {
    RecordKey key = record_of(0).key;
    key.problem = concat("matmul m=", m, " n=", n, " k=4096 dtype=bf16");
    return key;
  };
  if (root.empty()) {
    root = fresh_cache().root();
    const RecordStore store(root);
    for (std::int64_t i = 0; i < state.range(0); ++i) {
      TuningRecord record = record_of(0);
      record.key = key_of(64 * (i % 1000 + 1), 6144 + 64 * (i / 1000));
      const bool own_width = i < 1000;
      if (own_width ? !store.put(record) : !publish_file(store.folder(record.key) / "o.kwr", "x")) {
        state.SkipWithError("no put");
      }
    }
    // A listing that was read within a tick of a change would be read again.
    fs::last_write_time(store.folder(key_of(64, 6144)).parent_path(),
                        fs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  static const std::string today = digest(1);
  const TieredCache cache(root);
  const RecordKey key = key_of(4100, 6144);
  const BoundProblem problem = catalog->bind(Problem::parse(key.problem).value()).value();
  for (auto _ : state) {
    const std::vector<GradedRecord> found =
        cache.near(key, problem, {"nvrtc 13.0 abcd", "580.65.06", "0.1.0"},
                   [](std::string_view) { return today; }, {});
    if (found.empty() || found[0].head.key != key_of(4096, 6144)) {
      state.SkipWithError("not the nearest");
      break;
    }
  }
}

Problem hot_problem() { return matmul({.m = 4096, .n = 6144, .k = 4096}, DType::bf16); }

/// A service for a SKU without a GPU. Lookups in memory are the same as with a GPU.
const Service* hot_service() {
  static const Result<Service> service =
      Service::open({.cache = (folder() / "hot").native(), .sku = "h200"});
  return service && service->get_best_kernel(hot_problem()) ? &*service : nullptr;
}

/// Times hundreds of calls together, because reading the clock takes as long as one call. `p50_ns`
/// is the median time per call over these hundreds, so that time lost to other threads does not
/// count.
template <typename Call>
void time_hundreds(benchmark::State& state, const Call& call) {
  constexpr int kCalls = 100;
  std::vector<double> each_ns;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    each_ns.push_back(took.count() / kCalls);
  }
  const auto middle = each_ns.begin() + static_cast<std::ptrdiff_t>(each_ns.size() / 2);
  std::nth_element(each_ns.begin(), middle, each_ns.end());
  state.counters["p50_ns"] = benchmark::Counter(*middle, benchmark::Counter::kAvgThreads);
}

/// Calls `find` with the service and the problem of a kernel in memory.
template <typename Find>
void time_hot(benchmark::State& state, const Find& find) {
  const Service* service = hot_service();
  if (service == nullptr) {
    state.SkipWithError("no toolkit");
    return;
  }
  const Problem problem = hot_problem();
  time_hundreds(state, [&] { benchmark::DoNotOptimize(find(*service, problem)); });
}

void hot_borrow_best_kernel(benchmark::State& state) {
  time_hot(state,
           [](const Service& in, const Problem& of) { return in.borrow_best_kernel(of, nullptr); });
}

void hot_get_best_kernel(benchmark::State& state) {
  time_hot(state, [](const Service& in, const Problem& of) { return in.get_best_kernel(of); });
}

/// The comparison: the same problem in a map that is guarded by a mutex.
void mutex_guarded_map(benchmark::State& state) {
  struct Hash {
    std::size_t operator()(const Problem& problem) const {
      return std::hash<std::string>()(problem.operation()) ^
             static_cast<std::size_t>(problem.dims()[0].second);
    }
  };
  static std::mutex mutex;
  static std::unordered_map<Problem, int, Hash> map = {{hot_problem(), 1}};
  const Problem problem = hot_problem();
  time_hundreds(state, [&] {
    const std::lock_guard lock(mutex);
    benchmark::DoNotOptimize(map.find(problem)->second);
  });
}

BENCHMARK(artifact_hit)->Arg(4 << 10)->Arg(128 << 10)->Arg(1 << 20);
BENCHMARK(artifact_miss);
BENCHMARK(artifact_publish)->Arg(4 << 10)->Arg(128 << 10)->Iterations(500);
BENCHMARK(record_hit)->Arg(1)->Arg(8);
BENCHMARK(record_miss)->Arg(1)->Arg(4);
BENCHMARK(record_publish)->Iterations(500);
BENCHMARK(hot_borrow_best_kernel)->ThreadRange(1, 16)->UseRealTime();
BENCHMARK(hot_get_best_kernel)->ThreadRange(1, 16)->UseRealTime();
BENCHMARK(mutex_guarded_map)->ThreadRange(1, 16)->UseRealTime();

/// Prints the usual report, and keeps a row for each benchmark.
class Reporter : public benchmark::ConsoleReporter {
 public:
  explicit Reporter(BenchJson& json) : ConsoleReporter(OO_None), json_(json) {}

  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      if (run.error_occurred) {
        error = {ErrorCode::internal, concat(run.benchmark_name(), ": ", run.error_message)};
        continue;
      }
      const auto median = run.counters.find("p50_ns");
      const double us = median != run.counters.end()
                            ? median->second.value / 1000
                            : 1e6 * run.real_accumulated_time / static_cast<double>(run.iterations);
      const Result<void> added = json_.add({{"problem", run.benchmark_name()}, {"ours_us", us}});
      if (!added) error = added.error();
    }
  }

  Error error;

 private:
  BenchJson& json_;
};

int run(int argc, char** argv) {
  const std::string command = command_line(argc, argv);
  const std::int64_t most = integer_option(argc, argv, "--records", 100'000);
  benchmark::RegisterBenchmark("open_and_hit", open_and_hit)->Arg(0)->Arg(1000)->Arg(most);
  benchmark::RegisterBenchmark("near", near)->Arg(1000)->Arg(most);
  benchmark::Initialize(&argc, argv);
  expect_options(argc, argv, kUsage);
  Result<BenchJson> json = BenchJson::open(option_value(argc, argv, "--json").value_or(""), "cache",
                                           command, cpu_device());
  if (!json) {
    std::cerr << json.error().message << '\n';
    return 2;
  }
  std::string name = (fs::temp_directory_path() / "kernwright-bench-XXXXXX").native();
  if (::mkdtemp(name.data()) == nullptr) {
    std::cerr << "cannot create " << name << '\n';
    return 1;
  }
  folder() = name;
  Reporter reporter(*json);
  benchmark::RunSpecifiedBenchmarks(&reporter);
  std::error_code ignored;
  fs::remove_all(folder(), ignored);
  if (reporter.error.message.empty()) return 0;
  std::cerr << reporter.error.message << '\n';
  return 1;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
