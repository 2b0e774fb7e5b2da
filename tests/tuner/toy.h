#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "cache/layers/artifact_cache.h"
#include "compile/compiler.h"
#include "model/catalog/catalog.h"
#include "support/files.h"
#include "support/text.h"
#include "tests/temp_dir.h"
#include "tuner/runner.h"
#include "tuner/session/tuning_session.h"

namespace kernwright {

/// An operation of its own for tests, c[n] = a[n], with two templates. `toy/plain` has parameters A
/// (1..6) and B (1..4) at compile time and R (1, 2) at run time, and may spill 8 bytes; `toy/other`
/// has A (1, 2), and may spill 1000. For n = 100 a habit leaves out A = 6.
inline constexpr std::string_view kToyOperation = R"({
  "operation": "toy", "description": "c[n] = a[n]",
  "dims": {"n": {"bind": "exact"}},
  "dtypes": {"dtype": ["fp32", "bf16"]},
  "flags": {},
  "tensors": [
    {"name": "a", "role": "in", "dtype": "dtype", "extent": ["n"]},
    {"name": "c", "role": "out", "dtype": "dtype", "extent": ["n"]}
  ],
  "scalars": [],
  "inputs": {"timing": "normal", "exact": "small_integers"},
  "tolerance": {"reduction": "1", "accumulate": "fp32"},
  "flops": "n", "bytes": "2 * n * dtype_bytes",
  "example": {"n": 64, "dtype": "fp32"},
  "reference": {
    "kernel": "toy_reference", "grid": ["1"], "block": ["32"],
    "arguments": [{"tensor": "a"}, {"reference": "c"}, {"magnitude": "c"}, {"int64": "n"}]
  }
})";

inline std::string toy_manifest(std::string_view parameters, std::string_view defaults,
                                std::string_view grid, int spill_bytes) {
  return concat(R"({"operation": "toy", "description": "test", "source": "kernel.cu",
    "arch": {"min": 80}, "when": [], "dims": {"n": "runtime"},
    "parameters": {)",
                parameters, R"(}, "default": {)", defaults, R"(},
    "derived": {"THREADS": "32 * A"},
    "rules": [{"rule": "A * n > 0", "why": "there is work"}],
    "habits": [{"rule": "A < 6 || n != 100", "why": "a hundred have seldom gained"}],
    "spill_bytes": )",
                spill_bytes, R"(,
    "launches": [{"kernel": "toy", "grid": [")",
                grid, R"("], "block": ["THREADS"],
      "arguments": [{"tensor": "a"}, {"tensor": "c"}, {"int64": "n"}]}]})");
}

/// The folder of templates with the toy operation, and its catalog.
class ToyCatalog {
 public:
  ToyCatalog() {
    write("toy/operation.json", kToyOperation);
    write("toy/reference.cu", "reference");
    write("toy/plain/manifest.json",
          toy_manifest(R"("A": [1, 2, 3, 4, 5, 6], "B": [1, 2, 3, 4],
                          "R": {"values": [1, 2], "bind": "runtime"})",
                       R"("A": 2, "B": 2, "R": 1)", "R * ceil_div(n, THREADS)", 8));
    write("toy/plain/kernel.cu", "plain");
    write("toy/other/manifest.json",
          toy_manifest(R"("A": [1, 2])", R"("A": 1)", "ceil_div(n, THREADS)", 1000));
    write("toy/other/kernel.cu", "other");
    auto loaded = Catalog::load({directory_.path()});
    if (!loaded) throw std::runtime_error(loaded.error().message);
    catalog_ = std::move(loaded).value();
  }

  const Catalog& operator*() const { return *catalog_; }
  const Operation& operation() const { return *catalog_->operation("toy").value(); }
  BoundProblem problem(std::int64_t n = 4096) const {
    return catalog_->bind(Problem::make("toy", {{"n", n}}, {{"dtype", "fp32"}})).value();
  }

 private:
  void write(std::string_view name, std::string_view text) const {
    if (auto done = publish_file(directory_ / name, text); !done) {
      throw std::runtime_error(done.error().message);
    }
  }

  ScopedTempDir directory_;
  std::shared_ptr<const Catalog> catalog_;
};

/// A compiler whose "cubin" is the source and the generated configuration, so that candidates
/// differ. `behave` may change the result. A compile sleeps for `seconds`.
class FakeCompiler final : public Compiler {
 public:
  std::function<Result<CompiledKernel>(const CompileRequest&, CompiledKernel)> behave;
  double seconds = 0;
  std::atomic<int> compiles{0};

  Result<std::string> identity() override { return std::string("fake 1.0"); }
  Result<CompiledKernel> compile(const CompileRequest& request) override {
    ++compiles;
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    CompiledKernel kernel;
    kernel.bits = request.source;
    for (const auto& [name, text] : request.headers) {
      if (name == "kernwright/config.cuh") kernel.bits += "\n" + text;
    }
    kernel.target = request.target;
    kernel.entries.push_back({"toy", {.registers = 32}});
    kernel.seconds = seconds;
    return behave ? behave(request, std::move(kernel)) : Result<CompiledKernel>(std::move(kernel));
  }
  Result<CompiledKernel> link(const std::vector<std::string>&, const std::string&) override {
    return Error{ErrorCode::unavailable, "the fake does not link"};
  }
};

/// Returns the value of `name` in the generated configuration of a fake cubin, or -1.
inline int config_value(std::string_view cubin, std::string_view name) {
  const std::string key = concat("int ", name, " = ");
  const std::size_t at = cubin.find(key);
  return at == std::string_view::npos ? -1
                                      : std::stoi(std::string(cubin.substr(at + key.size(), 9)));
}

/// A runner over a landscape, a function that returns the behaviour and the time of a candidate.
/// Its clock moves by the times that are measured, and by `prepare_seconds` for each candidate.
class LandscapeRunner final : public Runner {
 public:
  std::function<double(const Candidate&)> time_us = [](const Candidate&) { return 10.0; };
  std::function<Outcome(const Candidate&)> outcome = [](const Candidate&) { return Outcome::ok; };
  /// A fault that only the finalist's check, or the one after timing, finds.
  std::function<Outcome(const Candidate&)> finalist = [](const Candidate&) { return Outcome::ok; };
  std::function<Outcome(const Candidate&)> after = [](const Candidate&) { return Outcome::ok; };
  Audit environment;
  double gap_us = 0.1;
  std::function<Result<LaunchTimes>(const Candidate&)> paths;
  std::map<std::string, int> samples;                                 ///< by candidate
  std::function<double(int sample)> noise = [](int) { return 0.0; };  ///< relative
  double clock_seconds = 0;
  double prepare_seconds = 0;
  double sample_seconds = 0.001;
  int prepared = 0;

  Result<Prepared> prepare(const Candidate& candidate, const CompiledKernel&) override {
    ++prepared;
    clock_seconds += prepare_seconds;
    const Outcome end = outcome(candidate);
    if (end == Outcome::launch_failed) return Prepared{-1, {end, "refused"}};
    candidates_[next_] = &candidate;
    return Prepared{next_++, {}};
  }
  Result<Checked> check(Id id, CheckDepth depth) override {
    Checked checked;
    checked.report.elements = 10;
    checked.report.unmapped = depth == CheckDepth::finalist;
    const Candidate& candidate = *candidates_.at(id);
    checked.step.outcome = depth == CheckDepth::finalist ? finalist(candidate) : outcome(candidate);
    if (checked.step.outcome != Outcome::ok) checked.step.detail = "injected";
    lost_ = checked.step.outcome == Outcome::device_lost;
    return checked;
  }
  Result<Checked> check_after_timing(Id id) override {
    Checked checked;
    checked.step.outcome = after(*candidates_.at(id));
    return checked;
  }
  Result<std::vector<Sampled>> sample(std::span<const Id> order) override {
    std::vector<Sampled> result;
    // Compiles take real time, which this clock does not follow, so filler must not outrun them.
    if (!order.empty() && order.front() < 0)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    for (const Id id : order) {
      use_.queued(clock_seconds);
      clock_seconds += sample_seconds;
      use_.done(clock_seconds);
      if (id >= 0) ++samples[candidates_.at(id)->id()];
      const double us = id < 0 ? 100 : time_us(*candidates_.at(id));
      result.push_back({{}, {us * (1 + noise(taken_++)), 1980, clock_seconds}});
    }
    return result;
  }
  Result<double> launch_gap_us(Id) override { return gap_us; }
  Result<LaunchTimes> launch_paths(Id id) override {
    return paths ? paths(*candidates_.at(id)) : Runner::launch_paths(id);
  }
  Result<Audit> audit() override { return environment; }
  DeviceUse take_use() override { return use_.take(clock_seconds); }
  void drop(Id id) override { candidates_.erase(id); }
  bool lost() const override { return lost_; }

 private:
  std::map<Id, const Candidate*> candidates_;
  Id next_ = 0;
  int taken_ = 0;
  UseMeter use_;
  bool lost_ = false;
};

/// Everything a session needs, on the toy operation and the h200 profile.
struct ToySession {
  ToyCatalog catalog;
  DeviceProfile profile = find_profile("h200").value();
  std::shared_ptr<FakeCompiler> compiler = std::make_shared<FakeCompiler>();
  ScopedTempDir folder;
  TieredCache cache{folder / "cache"};
  CompilePool pool{compiler,
                   {.threads = 4},
                   std::make_shared<ArtifactCache>(cache, std::chrono::milliseconds(0))};
  LandscapeRunner runner;
  TuningOptions options;
  EarlierTunings earlier;

  ToySession() {
    options.strategy = "exhaustive";
    options.clock_seconds = [this] { return runner.clock_seconds; };
  }
  TuningInput input() {
    return {.catalog = *catalog,
            .problem = catalog.problem(),
            .profile = profile,
            .pool = pool,
            .key = {catalog.problem().text(), "sm_90", "h200", {}},
            .environment = {
                .template_digest = {}, .compiler = "fake 1.0", .driver = "1", .kernwright = "0"}};
  }
  Result<TuningResult> run() { return TuningSession(input()).run(runner, options, earlier); }
};

/// A bowl over A and B with its best, 3 us, at A=5 B=3 R=2; toy/other takes 50 us.
inline double bowl_us(const Candidate& candidate) {
  if (candidate.kernel_template->name == "toy/other") return 50;
  const auto a = static_cast<double>(candidate.configuration.at("A"));
  const auto b = static_cast<double>(candidate.configuration.at("B"));
  return 3 + (a - 5) * (a - 5) + (b - 3) * (b - 3) + (candidate.configuration.at("R") == 1 ? 1 : 0);
}

}  // namespace kernwright
