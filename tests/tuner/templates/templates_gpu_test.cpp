#include <algorithm>
#include <gtest/gtest.h>

#include "compile/render.h"
#include "support/files.h"
#include "support/random.h"
#include "support/text.h"
#include "tests/results.h"
#include "tests/temp_dir.h"
#include "tests/tuner/templates/template_checks.h"
#include "tuner/session/tuning_session.h"

namespace kernwright {
namespace {

class TemplatesGpuTest : public TemplateChecks {};

TEST_F(TemplatesGpuTest, PointwiseDefaultsAreRightAtRandomShapes) {
  const std::vector<std::string> flags = {"gated_activation dtype=bf16",
                                          "gated_activation dtype=fp16 layout=packed",
                                          "gated_activation dtype=fp32",
                                          "gated_activation dtype=bf16 out=fp8_e4m3",
                                          "bias_activation dtype=bf16",
                                          "bias_activation dtype=fp16 activation=gelu_erf",
                                          "bias_activation dtype=fp32 residual=add"};
  std::vector<std::string> problems;
  for (std::uint64_t i = 0; i < 60; ++i) {
    // Columns over 18 powers of 2, and at most 2^21 elements.
    const std::uint64_t columns = 1 + hash_at(5, 2 * i) % (std::uint64_t{2} << (i % 18));
    const std::uint64_t rows =
        1 + hash_at(5, 2 * i + 1) % std::max<std::uint64_t>((1 << 21) / columns, 1);
    problems.push_back(concat(flags[i % flags.size()], " rows=", rows, " columns=", columns));
  }
  check_defaults(problems);
}

TEST_F(TemplatesGpuTest, AWrongKernelIsRefused) {
  const ScopedTempDir directory;
  const auto write = [&](std::string_view name, std::string_view text) {
    must(publish_file(directory / concat("vector_add/wrong/", name), text));
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
  const BoundProblem problem = bound("vector_add n=5000 dtype=bf16");
  const CandidateList list = enumerate(problem);
  const auto runner = must(open_runner(problem));
  int seen = 0;
  for (const Candidate& candidate : list.candidates) {
    if (candidate.kernel_template->name != "vector_add/wrong") continue;
    ++seen;
    const CompileResult kernel =
        pool_->submit(render(candidate, *catalog_, device_->profile().sm_arch)).get();
    ASSERT_TRUE(kernel) << kernel.error().message;
    const auto prepared = must(runner->prepare(candidate, *kernel.value()));
    const auto checked = must(runner->check(prepared.id, Runner::CheckDepth::screening));
    const std::int64_t mistake = candidate.configuration.at("MISTAKE");
    EXPECT_EQ(checked.step.outcome, mistake == 0 ? Outcome::ok : Outcome::wrong_result);
    EXPECT_EQ(checked.report.mismatches, mistake == 0 ? 0 : 1);
    if (mistake == 1) {
      EXPECT_TRUE(checked.report.first_mismatch.starts_with("c[4999]: "));
    }
    if (mistake == 2) {
      EXPECT_TRUE(checked.report.first_mismatch.starts_with("c[1234]: "));
    }
  }
  EXPECT_EQ(seen, 3);
}

TEST_F(TemplatesGpuTest, ASessionTunesEveryOperationsExample) {
  for (const Operation& op : catalog_->operations()) {
    const BoundProblem problem = BoundProblem::bind(op, op.example).value();
    SCOPED_TRACE(problem.text());
    const auto runner = must(open_device_runner(*device_, *ops_, problem, *catalog_, *pool_, {}));
    TuningSession session({.catalog = *catalog_,
                           .problem = problem,
                           .profile = device_->profile(),
                           .pool = *pool_,
                           .key = {problem.text(), "sm_90", device_->profile().id, {}},
                           .environment = {}});
    const auto result = must(session.run(*runner, {.budget = {.seconds = 8, .trials = 40}}));
    const TuningRecord& record = result.record;
    EXPECT_LE(record.check.max_error, 1);
    // Faster than the floor would mean that the work was not done.
    EXPECT_GT(record.winner.measurement.median_us(), 0.9 * record.roofline_us);
    for (const Trial& trial : result.trials) {
      EXPECT_NE(trial.outcome, Outcome::wrong_result) << trial.choice.id() << ": " << trial.detail;
      EXPECT_NE(trial.outcome, Outcome::launch_failed) << trial.choice.id() << ": " << trial.detail;
    }
  }
}

}  // namespace
}  // namespace kernwright
