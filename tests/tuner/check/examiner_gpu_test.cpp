#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compile/render.h"
#include "support/files.h"
#include "support/text.h"
#include "tests/results.h"
#include "tests/temp_dir.h"
#include "tests/tuner/gpu_world.h"
#include "tuner/candidates/candidate_list.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

/// Vector additions that are right but for one habit each.
constexpr std::string_view kFaulty = R"(
#include <kernwright/config.cuh>
#include <kernwright/ptx/programmatic.cuh>
using namespace kernwright;
using namespace kernwright::config;
extern "C" __global__ void vector_add_faulty(const dtype_t* a, const dtype_t* b, dtype_t* c,
                                             float* scratch, long long n, int ahead) {
  release_next_kernel();
  await_previous_kernel();
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float y = to_float(a[i]) + to_float(b[i]);
  if (HABIT == 1 && i == 0) c[n + 4] = from_float<dtype_t>(1);
  if (HABIT == 2 && i == 0) c[-4] = from_float<dtype_t>(1);
  if (HABIT == 3 && i == 5) const_cast<dtype_t*>(a)[5] = from_float<dtype_t>(77);
  if (HABIT == 4 && i < 256 && y != rintf(y)) {  // within the bound, and by chance
    const float z = to_float(from_float<dtype_t>(y * (1 + 0.001f * (clock64() / 64 % 2))));
    if (fabsf(z - y) <= 0.0035f * fabsf(y)) y = z;
  }
  if (HABIT == 5 && i == n - 1) {
    unsigned short beyond;
    asm volatile("ld.volatile.global.u16 %0, [%1];" : "=h"(beyond) : "l"(a + n));
    (void)beyond;
  }
  if (HABIT == 6 && i == 0) scratch[64] = 1;
  if (HABIT == 7 && i == 3) y += scratch[0] == scratch[0] ? 0.0f : scratch[0];
  if (HABIT == 8 && i == n / 2) y = nanf("");
  if (HABIT == 9) y = fmaxf(y, -1e30f);  // drops a NaN
  if (HABIT == 10 && ahead && i == 6) y += 1;
  c[i] = from_float<dtype_t>(y);
})";

constexpr std::string_view kManifest = R"json({
  "operation": "vector_add", "description": "wrong on purpose", "source": "kernel.cu",
  "arch": {"min": 80}, "when": [], "dims": {"n": "runtime"},
  "parameters": {"HABIT": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}, "default": {"HABIT": 0},
  "derived": {}, "rules": [], "spill_bytes": 0,
  "workspace": {"scratch": {"bytes": "256"}},
  "launches": [{"kernel": "vector_add_faulty", "grid": ["ceil_div(n, 256)"], "block": ["256"],
    "waits": "1", "ahead": ["a"],
    "arguments": [{"tensor": "a"}, {"tensor": "b"}, {"tensor": "c"}, {"workspace": "scratch"},
                  {"int64": "n"}, {"ahead": "1"}]}]})json";

class ExaminerGpuTest : public GpuWorld {
 protected:
  void SetUp() override {
    GpuWorld::SetUp();
    if (device_ == nullptr) return;
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    ASSERT_TRUE(publish_file(directory_ / "vector_add/faulty/kernel.cu", kFaulty));
    ASSERT_TRUE(publish_file(directory_ / "vector_add/faulty/manifest.json", kManifest));
    ASSERT_NO_FATAL_FAILURE(load_catalog({directory_.path()}));
    problem_ = bound("vector_add n=50000 dtype=bf16");
    list_ = must(enumerate_candidates(*catalog_, *problem_, device_->profile()));
  }

  const Candidate& with_habit(int habit) const {
    return *std::find_if(list_.candidates.begin(), list_.candidates.end(),
                         [&](const Candidate& candidate) {
                           return candidate.kernel_template->name == "vector_add/faulty" &&
                                  candidate.configuration.at("HABIT") == habit;
                         });
  }
  void open(bool disposable = false) { runner_ = must(open_runner(*problem_, 1, disposable)); }
  Runner::Id prepare(int habit) {
    const Candidate& candidate = with_habit(habit);
    const CompileResult kernel =
        pool_->submit(render(candidate, *catalog_, device_->profile().sm_arch)).get();
    EXPECT_TRUE(kernel) << kernel.error().message;
    const auto prepared = must(runner_->prepare(candidate, *kernel.value()));
    EXPECT_EQ(to_string(prepared.step.outcome), "ok") << prepared.step.detail;
    return prepared.id;
  }
  Runner::Checked check(int habit, Runner::CheckDepth depth = Runner::CheckDepth::screening) {
    return must(runner_->check(prepare(habit), depth));
  }

  ScopedTempDir directory_;
  std::optional<BoundProblem> problem_;
  CandidateList list_;
  std::unique_ptr<Runner> runner_;
};

TEST_F(ExaminerGpuTest, ARightKernelPassesAtEitherDepth) {
  open(true);
  for (const auto depth : {Runner::CheckDepth::screening, Runner::CheckDepth::finalist}) {
    const bool finalist = depth == Runner::CheckDepth::finalist;
    const Runner::Checked checked = check(0, depth);
    EXPECT_EQ(to_string(checked.step.outcome), "ok") << checked.step.detail;
    EXPECT_TRUE(checked.report.exact);
    EXPECT_TRUE(checked.report.guarded);
    EXPECT_EQ(checked.report.unmapped, finalist);
    EXPECT_EQ(checked.report.repeats, finalist ? 50 : 3);
    EXPECT_TRUE(checked.report.deterministic);
  }
}

TEST_F(ExaminerGpuTest, EveryHabitIsNamedAndLeavesTheNextCandidateUnharmed) {
  open();
  const auto expect = [&](int habit, Outcome outcome, std::string_view detail) {
    const Runner::Checked checked = check(habit);
    EXPECT_EQ(to_string(checked.step.outcome), to_string(outcome)) << "habit " << habit;
    EXPECT_THAT(checked.step.detail, HasSubstr(detail));
    const Runner::Checked right = check(0);
    EXPECT_EQ(to_string(right.step.outcome), "ok") << right.step.detail;
  };
  expect(1, Outcome::out_of_bounds, "wrote 8 bytes behind the end of c");
  expect(2, Outcome::out_of_bounds, "bytes before the start of c");
  expect(3, Outcome::out_of_bounds, "changed input a");
  expect(6, Outcome::out_of_bounds, "bytes behind the end of the workspace");
  expect(7, Outcome::wrong_result, "c[3]: nan");
  expect(8, Outcome::wrong_result, "c[25000]: nan");
  expect(9, Outcome::wrong_result, "with NaN among the inputs: ");
}

TEST_F(ExaminerGpuTest, OtherBitsAreFoundInARepeat) {
  open();
  const Runner::Checked checked = check(4, Runner::CheckDepth::finalist);
  EXPECT_EQ(to_string(checked.step.outcome), "nondeterministic") << checked.step.detail;
  EXPECT_TRUE(checked.report.exact);
  EXPECT_FALSE(checked.report.deterministic);
}

TEST_F(ExaminerGpuTest, AFaultOfWhatIsReadAheadIsFound) {
  open();
  const bool can_start_early = device_->profile().sm_arch >= 90;
  EXPECT_EQ(to_string(check(10).step.outcome), can_start_early ? "nondeterministic" : "ok");
}

TEST_F(ExaminerGpuTest, AStrayReadEndsAtAnUnmappedPage) {
  EXPECT_EXIT(
      {
        open(true);
        const bool passes_screening = check(5).step.outcome == Outcome::ok;
        const Runner::Checked checked = check(5, Runner::CheckDepth::finalist);
        std::fprintf(stderr, "%s: %s", std::string(to_string(checked.step.outcome)).c_str(),
                     checked.step.detail.c_str());
        std::_Exit(passes_screening && runner_->lost() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "illegal_address: with the ends of all tensors");
}

TEST_F(ExaminerGpuTest, AReplayIsExaminedWithItsTwin) {
  DeviceRunnerOptions options;  // cold: several sets
  runner_ = must(open_device_runner(*device_, *ops_, *problem_, *catalog_, *pool_, options));
  const Runner::Id id = prepare(0);
  ASSERT_TRUE(runner_->check(id, Runner::CheckDepth::screening));
  const auto checked = must(runner_->check_after_timing(id));
  EXPECT_EQ(to_string(checked.step.outcome), "ok") << checked.step.detail;
  EXPECT_TRUE(checked.report.after_timing);
}

TEST_F(ExaminerGpuTest, ReferencesAreSteadyAndTheTimersAgree) {
  open();
  for (const Runner::Id id : {Runner::kSmProbe, Runner::kDramProbe}) {
    ASSERT_TRUE(runner_->sample(std::vector<Runner::Id>(100, id)));  // warm
    const auto sampled = must(runner_->sample(std::vector<Runner::Id>(21, id)));
    Measurement measurement;
    for (const Runner::Sampled& one : sampled) {
      ASSERT_EQ(to_string(one.step.outcome), "ok") << one.step.detail;
      measurement.samples_us.push_back(one.sample.us);
      EXPECT_GT(one.sample.sm_mhz, 200);
      EXPECT_LT(one.sample.sm_mhz, 4000);
    }
    RecordProperty(concat("reference_", -id, "_us"), concat(measurement.median_us()));
    EXPECT_LT(measurement.mad_us(), 0.02 * measurement.median_us());
    EXPECT_GT(measurement.median_us(), 20);
    EXPECT_LT(measurement.median_us(), 2000);
  }
  const auto audit = must(runner_->audit());
  ASSERT_EQ(audit.rows.size(), 1U);
  EXPECT_EQ(audit.rows[0].trust, Trust::a) << audit.rows[0].detail;
}

TEST_F(ExaminerGpuTest, ALaunchGapIsAFewMicrosecondsAtMost) {
  open();
  const auto gap = must(runner_->launch_gap_us(prepare(0)));
  EXPECT_GT(gap, 0.2);
  EXPECT_LT(gap, 20);
  RecordProperty("launch_gap_us", concat(gap));
}

}  // namespace
}  // namespace kernwright
