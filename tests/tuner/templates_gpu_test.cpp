#include <algorithm>
#include <future>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "compile/render.h"
#include "support/files.h"
#include "support/text.h"
#include "tests/temp_dir.h"
#include "tests/tuner/gpu_world.h"
#include "tuner/draw.h"
#include "tuner/tuning_session.h"

namespace kernwright {
namespace {

class TemplatesGpuTest : public GpuWorld {
 protected:
  CandidateList enumerate(const Problem& problem) {
    auto list = enumerate_candidates(*catalog_, operation(problem.operation()), problem,
                                     device_->profile());
    EXPECT_TRUE(list) << list.error().message;
    return list ? std::move(list).value() : CandidateList{};
  }

  /// Compiles and checks `chosen` of `list` on inputs drawn from `seed`, at the depth of a finalist
  /// against unmapped pages too; stops at a lost device.
  void check(const Problem& problem, const CandidateList& list,
             const std::vector<std::size_t>& chosen, std::uint64_t seed,
             Runner::CheckDepth depth = Runner::CheckDepth::screening) {
    const bool finalist = depth == Runner::CheckDepth::finalist;
    std::vector<std::shared_future<CompileResult>> kernels;
    kernels.reserve(chosen.size());
    for (const std::size_t i : chosen) {
      kernels.push_back(
          pool_->submit(render(list.candidates[i], *catalog_, device_->profile().sm_arch)));
    }
    const auto runner = open_runner(problem, seed, finalist);
    ASSERT_TRUE(runner) << runner.error().message;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const Candidate& candidate = list.candidates[chosen[i]];
      SCOPED_TRACE(concat(problem.text(), ": ", candidate.id()));
      const CompileResult& kernel = kernels[i].get();
      ASSERT_TRUE(kernel) << kernel.error().message;
      const auto prepared = runner.value()->prepare(candidate, *kernel.value());
      ASSERT_TRUE(prepared) << prepared.error().message;
      ASSERT_EQ(to_string(prepared.value().step.outcome), "ok") << prepared.value().step.detail;
      const auto checked = runner.value()->check(prepared.value().id, depth);
      ASSERT_TRUE(checked) << checked.error().message;
      EXPECT_EQ(to_string(checked.value().step.outcome), "ok") << checked.value().step.detail;
      EXPECT_TRUE(checked.value().report.guarded);
      EXPECT_EQ(checked.value().report.exact,
                operation(problem.operation()).exact_inputs.has_value());
      EXPECT_EQ(checked.value().report.unmapped, finalist);
      EXPECT_LE(checked.value().report.max_error, 1);
      ASSERT_FALSE(runner.value()->lost());
      runner.value()->drop(prepared.value().id);
    }
  }

  /// Of every template that has candidates: its default configuration where that is valid, else its
  /// first candidate.
  static std::vector<std::size_t> defaults(const CandidateList& list) {
    std::map<std::string, std::size_t> of;
    for (std::size_t i = 0; i < list.candidates.size(); ++i) {
      const Candidate& candidate = list.candidates[i];
      of.emplace(candidate.kernel_template->name, i);
      if (candidate.configuration == candidate.kernel_template->default_configuration) {
        of[candidate.kernel_template->name] = i;
      }
    }
    std::vector<std::size_t> chosen;
    chosen.reserve(of.size());
    for (const auto& [name, i] : of) chosen.push_back(i);
    return chosen;
  }

  void check_defaults(const std::vector<std::string>& problems) {
    for (const std::string& text : problems) {
      const Problem problem = normalized(text);
      const CandidateList list = enumerate(problem);
      check(problem, list, defaults(list), 11);
      if (HasFatalFailure()) return;
    }
  }

  /// `count` different candidates of one template, evenly spread by a hash.
  static std::vector<std::size_t> some(const CandidateList& list, std::string_view kernel_template,
                                       std::size_t count) {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < list.candidates.size(); ++i) {
      if (list.candidates[i].kernel_template->name == kernel_template) all.push_back(i);
    }
    std::sort(all.begin(), all.end(),
              [](std::size_t a, std::size_t b) { return hash_at(3, a) < hash_at(3, b); });
    all.resize(std::min(all.size(), count));
    return all;
  }
};

TEST_F(TemplatesGpuTest, MatmulDefaultsAreRightAtOddSizes) {
  std::vector<std::string> problems;
  for (const int m : {1, 7, 127, 1000}) {
    for (const int n : {1, 7, 127, 1000}) {
      for (const int k : {1, 7, 127, 1000}) {
        problems.push_back(concat("matmul m=", m, " n=", n, " k=", k, " dtype=bf16"));
      }
    }
  }
  for (const char* more : {"m=1000 n=127 k=1000", "m=127 n=1000 k=7", "m=300 n=264 k=8",
                           "m=1 n=8 k=8", "m=257 n=8 k=4096", "m=3 n=777 k=4104",
                           "m=16 n=4096 k=4096", "m=33 n=100 k=14336", "m=64 n=1001 k=520"}) {
    problems.push_back(concat("matmul ", more, " dtype=fp16"));
  }
  check_defaults(problems);
}

TEST_F(TemplatesGpuTest, RmsnormDefaultsAreRightAtOddSizes) {
  std::vector<std::string> problems;
  for (const char* dtype : {"bf16", "fp16", "fp32"}) {
    for (const int rows : {1, 7, 1000}) {
      for (const int columns : {1, 7, 127, 1000, 4100, 30001}) {
        for (const char* weight : {"scale", "none"}) {
          problems.push_back(concat("rmsnorm rows=", rows, " columns=", columns, " dtype=", dtype,
                                    " weight=", weight));
        }
      }
    }
  }
  check_defaults(problems);
}

TEST_F(TemplatesGpuTest, VectorAddDefaultsAreRightAtOddSizes) {
  std::vector<std::string> problems;
  for (const char* dtype : {"bf16", "fp16", "fp32"}) {
    for (const int n : {1, 7, 127, 1000, 65537, 1000003}) {
      problems.push_back(concat("vector_add n=", n, " dtype=", dtype));
    }
  }
  check_defaults(problems);
}

TEST_F(TemplatesGpuTest, ThirtyRandomConfigurationsOfEachAreRight) {
  const std::map<std::string, std::vector<std::string>> problems = {
      {"matmul",
       {"matmul m=515 n=776 k=1096 dtype=bf16", "matmul m=200 n=333 k=517 dtype=fp16",
        "matmul m=13 n=777 k=1096 dtype=bf16", "matmul m=49 n=333 k=1096 dtype=fp16"}},
      {"rmsnorm",
       {"rmsnorm rows=301 columns=4104 dtype=bf16", "rmsnorm rows=77 columns=771 dtype=fp32"}},
      {"vector_add", {"vector_add n=1000001 dtype=bf16", "vector_add n=300000 dtype=fp32"}}};
  std::uint64_t seed = 100;
  std::set<std::string> covered;
  for (const KernelTemplate& kernel_template : catalog_->templates()) {
    for (const std::string& text : problems.at(kernel_template.operation)) {
      const Problem problem = normalized(text);
      const CandidateList list = enumerate(problem);
      const auto chosen = some(list, kernel_template.name, 30);
      if (!chosen.empty()) covered.insert(kernel_template.name);
      check(problem, list, chosen, seed++);
      if (HasFatalFailure()) return;
    }
    if (kernel_template.runs_on(device_->profile().sm_arch)) {
      EXPECT_TRUE(covered.contains(kernel_template.name)) << kernel_template.name;
    }
  }
}

TEST_F(TemplatesGpuTest, DefaultsAndRandomConfigurationsTouchNoUnmappedPage) {
  for (const char* text :
       {"matmul m=127 n=264 k=1000 dtype=bf16", "matmul m=129 n=1001 k=517 dtype=fp16",
        "matmul m=512 n=1024 k=512 dtype=bf16", "matmul m=5 n=1001 k=1032 dtype=bf16",
        "matmul m=33 n=264 k=2056 dtype=fp16", "rmsnorm rows=77 columns=771 dtype=fp32",
        "rmsnorm rows=301 columns=4104 dtype=bf16", "vector_add n=1000003 dtype=bf16",
        "vector_add n=65536 dtype=fp32"}) {
    const Problem problem = normalized(text);
    const CandidateList list = enumerate(problem);
    std::vector<std::size_t> chosen = defaults(list);
    for (const KernelTemplate& kernel_template : catalog_->templates()) {
      for (const std::size_t one : some(list, kernel_template.name, 4)) chosen.push_back(one);
    }
    check(problem, list, chosen, 21, Runner::CheckDepth::finalist);
    if (HasFatalFailure()) return;
  }
}

TEST_F(TemplatesGpuTest, AWrongKernelIsRefused) {
  const ScopedTempDir directory;
  const auto write = [&](std::string_view name, std::string_view text) {
    const auto done = publish_file(directory / concat("vector_add/wrong/", name), text);
    ASSERT_TRUE(done) << done.error().message;
  };
  // MISTAKE 0 is right, 1 leaves the last element out, 2 adds a to itself in one element.
  write("kernel.cu", R"(
#include <kernwright/config.cuh>
using namespace kernwright;
using namespace kernwright::config;
extern "C" __global__ void vector_add_wrong(const dtype_t* a, const dtype_t* b, dtype_t* c,
                                            long long n) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n || (MISTAKE == 1 && i == n - 1)) return;
  const float y = to_float(MISTAKE == 2 && i == 1234 ? a[i] : b[i]);
  c[i] = from_float<dtype_t>(to_float(a[i]) + y);
})");
  write("manifest.json", R"json({
    "operation": "vector_add", "description": "wrong on purpose", "source": "kernel.cu",
    "arch": {"min": 80}, "when": [], "dims": {"n": "runtime"},
    "parameters": {"MISTAKE": [0, 1, 2]}, "default": {"MISTAKE": 0}, "derived": {}, "rules": [],
    "spill_bytes": 0,
    "launches": [{"kernel": "vector_add_wrong", "grid": ["ceil_div(n, 256)"], "block": ["256"],
      "arguments": [{"tensor": "a"}, {"tensor": "b"}, {"tensor": "c"}, {"int64": "n"}]}]})json");
  ASSERT_NO_FATAL_FAILURE(load_catalog({directory.path()}));
  const Problem problem = normalized("vector_add n=5000 dtype=bf16");
  const CandidateList list = enumerate(problem);
  const auto runner = open_runner(problem);
  ASSERT_TRUE(runner) << runner.error().message;
  int seen = 0;
  for (const Candidate& candidate : list.candidates) {
    if (candidate.kernel_template->name != "vector_add/wrong") continue;
    ++seen;
    const CompileResult kernel =
        pool_->submit(render(candidate, *catalog_, device_->profile().sm_arch)).get();
    ASSERT_TRUE(kernel) << kernel.error().message;
    const auto prepared = runner.value()->prepare(candidate, *kernel.value());
    ASSERT_TRUE(prepared);
    const auto checked = runner.value()->check(prepared.value().id, Runner::CheckDepth::screening);
    ASSERT_TRUE(checked) << checked.error().message;
    const std::int64_t mistake = candidate.configuration.at("MISTAKE");
    EXPECT_EQ(checked.value().step.outcome, mistake == 0 ? Outcome::ok : Outcome::wrong_result);
    EXPECT_EQ(checked.value().report.mismatches, mistake == 0 ? 0 : 1);
    if (mistake == 1) {
      EXPECT_TRUE(checked.value().report.first_mismatch.starts_with("c[4999]: "));
    }
    if (mistake == 2) {
      EXPECT_TRUE(checked.value().report.first_mismatch.starts_with("c[1234]: "));
    }
  }
  EXPECT_EQ(seen, 3);
}

TEST_F(TemplatesGpuTest, ASessionTunesEveryOperationsExample) {
  for (const Operation& op : catalog_->operations()) {
    const Problem problem = op.normalize(op.example).value();
    SCOPED_TRACE(problem.text());
    const auto runner = open_device_runner(*device_, *ops_, op, problem, *catalog_, *pool_, {});
    ASSERT_TRUE(runner) << runner.error().message;
    const ScopedTempDir cache;
    const ArtifactStore artifacts(cache / "artifacts");
    TuningOptions options;
    options.budget.seconds = 8;
    options.budget.trials = 40;
    TuningSession session(*catalog_, op, problem, device_->profile(),
                          {problem.text(), "sm_90", device_->profile().id, {}}, {}, *pool_,
                          *runner.value(), artifacts, options);
    const auto result = session.run();
    ASSERT_TRUE(result) << result.error().message;
    const TuningRecord& record = result.value().record;
    EXPECT_LE(record.check.max_error, 1);
    // Faster than the floor would mean that the work was not done.
    EXPECT_GT(record.winner.measurement.median_us(), 0.9 * record.roofline_us);
    for (const Trial& trial : result.value().trials) {
      EXPECT_NE(trial.outcome, Outcome::wrong_result) << trial.id() << ": " << trial.detail;
      EXPECT_NE(trial.outcome, Outcome::launch_failed) << trial.id() << ": " << trial.detail;
    }
  }
}

}  // namespace
}  // namespace kernwright
