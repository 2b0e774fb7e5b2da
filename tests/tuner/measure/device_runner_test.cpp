#include "tuner/measure/device_runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "compile/render.h"
#include "tests/doubles/fake_device.h"
#include "tests/doubles/host_data_ops.h"
#include "tests/results.h"
#include "tests/tuner/toy.h"
#include "tuner/check/checker.h"
#include "tuner/data/buffer_sets.h"
#include "tuner/data/element.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

TEST(SetCountTest, ColdSetsPassThreeTimesTheL2) {
  EXPECT_EQ((SetCount{1 << 20, 50 << 20, std::int64_t{64} << 30, true}.count()), 150);
  EXPECT_EQ((SetCount{200 << 20, 50 << 20, std::int64_t{64} << 30, true}.count()), 2);
  EXPECT_EQ((SetCount{256, 50 << 20, std::int64_t{64} << 30, true}.count()), 512);
}

TEST(SetCountTest, OneSetBeyondFiveTimesTheL2IsEnough) {
  EXPECT_EQ((SetCount{250 << 20, 50 << 20, std::int64_t{64} << 30, true}.count()), 2);
  EXPECT_EQ((SetCount{251 << 20, 50 << 20, std::int64_t{64} << 30, true}.count()), 1);
}

TEST(SetCountTest, WhatALaunchLeavesAloneDoesNotCount) {
  const std::int64_t memory = std::int64_t{64} << 30;
  EXPECT_EQ((SetCount{1 << 30, 50 << 20, memory, true, 5 << 20}.count()), 30);
  EXPECT_EQ((SetCount{1 << 30, 50 << 20, memory, true, 1 << 20}.count()), 64) << "as many as fit";
}

TEST(SetCountTest, MemoryBoundsThem) {
  EXPECT_EQ((SetCount{20 << 20, 50 << 20, 100 << 20, true}.count()), 5);
  EXPECT_EQ((SetCount{200 << 20, 50 << 20, 100 << 20, true}.count()), 1);
}

TEST(SetCountTest, WarmIsOne) {
  EXPECT_EQ((SetCount{1 << 20, 50 << 20, std::int64_t{64} << 30, false}.count()), 1);
}

TEST(ErrorBoundTest, FollowsReductionAndFormats) {
  const auto catalog = Catalog::load({}).value();
  const BoundProblem problem =
      catalog->bind(Problem::parse("matmul m=8 n=8 k=1024 dtype=bf16").value()).value();
  const ErrorBound bound = error_bound(problem, problem.shapes().back());
  EXPECT_DOUBLE_EQ(bound.accumulate_unit, 8 * 32 * 0x1p-22);
  EXPECT_DOUBLE_EQ(bound.output_unit, 0x1p-8);
}

/// A fake device whose programs copy a to c, and the reference likewise, so that inputs matter.
class DeviceRunnerTest : public ::testing::Test {
 protected:
  DeviceRunnerTest() {
    FakeDeviceOptions options;
    options.profile = profile_;
    options.profile.l2_bytes = 1 << 20;
    options.landscape = [this](std::string_view cubin, const ExecutionPlan& plan) {
      FakeBehavior behavior;
      const int a = config_value(cubin, "A");
      behavior.time_us =
          a < 0 ? 100 : 10 * a + static_cast<double>(plan.launches[0].grid[0]) * 0.01;
      if (a == 5) behavior.outcome = Outcome::wrong_result;
      if (a == failing_) behavior.outcome = Outcome::illegal_address;
      behavior.wrong_ahead = wrong_ahead_;
      return behavior;
    };
    options.compute = [this](const ExecutionPlan& plan, const LaunchArguments& arguments) {
      compute(plan, arguments);
    };
    options.faults = [this](const ExecutionPlan& plan, const LaunchArguments& arguments) {
      return faults_ && !plan.tensors.empty() && faults_(arguments);
    };
    device_ = make_fake_device(std::move(options), clock_);
  }

  void compute(const ExecutionPlan& plan, const LaunchArguments& arguments) {
    const auto elements = static_cast<std::size_t>(plan.tensors[0].elements());
    const auto copy = [&](DevicePointer to) {
      std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(arguments.tensors[0]),
                  elements * 4);
    };
    if (!arguments.references.empty()) {
      copy(arguments.references[1]);
      auto* const magnitude = reinterpret_cast<float*>(arguments.magnitudes[1]);
      if (reference_drops_nan_) {
        auto* const reference = reinterpret_cast<float*>(arguments.references[1]);
        std::replace_if(
            reference, reference + elements, [](float x) { return std::isnan(x); }, 0.0F);
      }
      std::memcpy(magnitude, reinterpret_cast<void*>(arguments.references[1]), elements * 4);
      std::transform(magnitude, magnitude + elements, magnitude,
                     [](float x) { return std::fabs(x); });
      if (broken_reference_) {
        reinterpret_cast<float*>(arguments.references[1])[3] = std::nanf("");
      }
      return;
    }
    copy(arguments.tensors[1]);
    ++runs_;
    if (mischief_) mischief_(reinterpret_cast<float*>(arguments.tensors[1]), elements, arguments);
    if (decays_after_ > 0 && runs_ > decays_after_) {
      reinterpret_cast<float*>(arguments.tensors[1])[0] += 1;
    }
  }

  Result<std::unique_ptr<Runner>> open(const DeviceRunnerOptions& runner_options = {}) {
    return open_device_runner(*device_, *ops_, toy_.problem(elements_), *toy_, pool_,
                              runner_options);
  }
  /// Returns a check's result for a candidate that does its mischief after each right run.
  Runner::Checked check(Runner::CheckDepth depth = Runner::CheckDepth::screening) {
    DeviceRunnerOptions runner_options;
    runner_options.disposable = true;
    const auto runner = must(open(runner_options));
    return must(runner->check(prepare(*runner, 2).value().id, depth));
  }
  /// Prepares the configuration `A`=a of toy/plain.
  Result<Runner::Prepared> prepare(Runner& runner, int a) {
    Candidate& candidate = candidates_.emplace_back(
        make_candidate(*(*toy_).kernel_template("toy/plain").value(), toy_.problem(elements_),
                       Configuration({{"A", a}, {"B", 1}, {"R", 1}}), profile_)
            .value());
    candidate.plan.workspaces = workspaces_;
    candidate.plan.launches[0].ahead = ahead_;
    const CompileResult kernel = pool_.submit(render(candidate, *toy_, 90)).get();
    return runner.prepare(candidate, *kernel.value());
  }

  ToyCatalog toy_;
  DeviceProfile profile_ = find_profile("h200").value();
  ManualClock clock_;
  CompilePool pool_{std::make_shared<FakeCompiler>(), {.threads = 1}};
  std::unique_ptr<DataOps> ops_ = make_host_data_ops();
  std::deque<Candidate> candidates_;
  std::vector<WorkspacePlan> workspaces_;  ///< of every candidate
  std::vector<std::size_t> ahead_;         ///< tensors that every candidate reads ahead
  bool wrong_ahead_ = false;
  bool broken_reference_ = false;
  bool reference_drops_nan_ = false;
  std::function<void(float* out, std::size_t elements, const LaunchArguments&)> mischief_;
  std::function<bool(const LaunchArguments&)> faults_;
  std::int64_t elements_ = 4096;
  int failing_ = -2;
  int runs_ = 0;
  int decays_after_ = 0;
  std::unique_ptr<Device> device_;
};

TEST_F(DeviceRunnerTest, ARightCandidatePassesAndIsTimed) {
  const auto runner = must(open());
  const auto prepared = must(prepare(*runner, 2));
  ASSERT_EQ(prepared.step.outcome, Outcome::ok);
  const auto checked = must(runner->check(prepared.id, Runner::CheckDepth::screening));
  EXPECT_EQ(checked.step.outcome, Outcome::ok) << checked.step.detail;
  EXPECT_EQ(checked.report.elements, 4096);
  EXPECT_EQ(checked.report.max_error, 0);
  const Runner::Id id = prepared.id;
  const auto sampled = must(runner->sample(std::vector<Runner::Id>(5, id)));
  ASSERT_EQ(sampled.size(), 5U);
  for (const Runner::Sampled& one : sampled) EXPECT_EQ(one.sample.us, 20.64);
}

TEST_F(DeviceRunnerTest, SamplesTakeAboutTheTimeAimedAt) {
  const auto runner = must(open());
  const Runner::Id id = prepare(*runner, 2).value().id;
  ASSERT_TRUE(runner->sample(std::span(&id, 1)));
  const double before = clock_.now_us();
  ASSERT_TRUE(runner->sample(std::span(&id, 1)));
  // 3 MB over 32 KB: 96 sets; 1.5 ms is nearer to one rotation of 20.64 us units than to two.
  EXPECT_NEAR(clock_.now_us() - before, 96 * 20.64, 1);
}

TEST_F(DeviceRunnerTest, AWrongResultNamesTheElementAndBothValues) {
  const auto runner = must(open());
  const auto prepared = prepare(*runner, 5);
  const auto checked = must(runner->check(prepared.value().id, Runner::CheckDepth::screening));
  EXPECT_EQ(checked.step.outcome, Outcome::wrong_result);
  EXPECT_EQ(checked.report.mismatches, 4096);
  EXPECT_THAT(checked.step.detail, HasSubstr("c[0]: -77 != "));
}

TEST_F(DeviceRunnerTest, TheReportSaysHowFarTheProofWent) {
  const Runner::Checked screened = check();
  EXPECT_EQ(screened.step.outcome, Outcome::ok) << screened.step.detail;
  EXPECT_TRUE(screened.report.exact);
  EXPECT_TRUE(screened.report.guarded);
  EXPECT_FALSE(screened.report.unmapped);
  EXPECT_EQ(screened.report.repeats, 3);
  EXPECT_TRUE(screened.report.deterministic);
  EXPECT_FALSE(screened.report.after_timing);
  const Runner::Checked finalist = check(Runner::CheckDepth::finalist);
  EXPECT_EQ(finalist.step.outcome, Outcome::ok) << finalist.step.detail;
  EXPECT_TRUE(finalist.report.unmapped);
  EXPECT_EQ(finalist.report.repeats, 50);
}

TEST_F(DeviceRunnerTest, WhatIsKeptZeroIsLeftZero) {
  workspaces_ = {{.name = "partials", .bytes = 300},
                 {.name = "tickets", .bytes = 8, .kept_zero = true}};
  const auto ticket = [](const LaunchArguments& arguments) {
    return reinterpret_cast<int*>(arguments.workspace + 512);
  };
  mischief_ = [&](float*, std::size_t, const LaunchArguments& arguments) {
    EXPECT_EQ(*ticket(arguments), 0) << "on entry";
    *ticket(arguments) = 3;
    *ticket(arguments) = 0;
    *reinterpret_cast<int*>(arguments.workspace) = 3;  // the other one is not kept
  };
  EXPECT_EQ(check(Runner::CheckDepth::finalist).step.outcome, Outcome::ok);
  mischief_ = [&](float*, std::size_t, const LaunchArguments& arguments) {
    if (runs_ == 3) *ticket(arguments) = 3;
  };
  runs_ = 0;
  const Runner::Checked left = check();
  EXPECT_EQ(left.step.outcome, Outcome::wrong_result);
  EXPECT_EQ(left.step.detail, "did not leave workspace tickets zero, as it is kept");

  mischief_ = nullptr;
  const auto runner = must(open());
  const Runner::Id id = prepare(*runner, 2).value().id;
  ASSERT_TRUE(runner->check(id, Runner::CheckDepth::screening));
  mischief_ = [&](float*, std::size_t, const LaunchArguments& arguments) {
    *ticket(arguments) = 3;
  };
  const auto timed = must(runner->check_after_timing(id));
  EXPECT_EQ(timed.step.detail, "after timing: did not leave workspace tickets zero, as it is kept");
}

TEST_F(DeviceRunnerTest, APassedReplayCompletesTheReport) {
  const auto runner = must(open());
  const Runner::Id id = prepare(*runner, 2).value().id;
  ASSERT_TRUE(runner->check(id, Runner::CheckDepth::screening));
  auto checked = runner->check_after_timing(id);
  ASSERT_TRUE(checked);
  EXPECT_EQ(checked.value().step.outcome, Outcome::ok) << checked.value().step.detail;
  EXPECT_TRUE(checked.value().report.after_timing);
  EXPECT_TRUE(checked.value().report.exact);
  EXPECT_EQ(checked.value().report.repeats, 3);
  checked = runner->check(id, Runner::CheckDepth::finalist);
  EXPECT_TRUE(checked.value().report.after_timing);
  EXPECT_FALSE(checked.value().report.unmapped) << "this process must not be lost";
}

TEST_F(DeviceRunnerTest, AnElementThatIsNotWrittenIsFound) {
  mischief_ = [](float* out, std::size_t elements, const LaunchArguments&) {
    std::memset(out + (elements - 1), 0xFF, 4);  // what was there before
  };
  const Runner::Checked checked = check();
  EXPECT_EQ(checked.step.outcome, Outcome::wrong_result);
  EXPECT_EQ(checked.report.mismatches, 1);
  EXPECT_THAT(checked.report.first_mismatch, HasSubstr("c[4095]: "));
}

TEST_F(DeviceRunnerTest, AWriteBehindATensorIsFound) {
  mischief_ = [](float* out, std::size_t elements, const LaunchArguments&) {
    out[elements + 2] = 1;
  };
  const Runner::Checked checked = check();
  EXPECT_EQ(checked.step.outcome, Outcome::out_of_bounds);
  // The first two bytes of 1.0 are zeros.
  EXPECT_EQ(checked.step.detail, "wrote 8 bytes behind the end of c");
  EXPECT_FALSE(checked.report.guarded);
}

TEST_F(DeviceRunnerTest, AWriteBeforeATensorIsFound) {
  mischief_ = [](float* out, std::size_t, const LaunchArguments&) { out[-3] = 1; };
  const Runner::Checked checked = check();
  EXPECT_EQ(checked.step.outcome, Outcome::out_of_bounds);
  EXPECT_EQ(checked.step.detail, "wrote 8 bytes before the start of c");
}

TEST_F(DeviceRunnerTest, AChangedInputIsFoundAndRepaired) {
  const auto runner = must(open());
  const Runner::Id id = prepare(*runner, 2).value().id;
  mischief_ = [](float*, std::size_t, const LaunchArguments& arguments) {
    reinterpret_cast<float*>(arguments.tensors[0])[17] += 1;
  };
  const auto checked = must(runner->check(id, Runner::CheckDepth::screening));
  EXPECT_EQ(checked.step.outcome, Outcome::out_of_bounds);
  EXPECT_EQ(checked.step.detail, "changed input a");
  mischief_ = nullptr;
  const auto again = must(runner->check(id, Runner::CheckDepth::screening));
  EXPECT_EQ(again.step.outcome, Outcome::ok) << again.step.detail;
}

TEST_F(DeviceRunnerTest, OneBitBesideTheExactResultIsWrong) {
  mischief_ = [](float* out, std::size_t, const LaunchArguments&) {
    out[7] = std::nextafter(out[7], 100.0F);  // well within the bound
  };
  const Runner::Checked checked = check();
  EXPECT_EQ(checked.step.outcome, Outcome::wrong_result);
  EXPECT_THAT(checked.step.detail, HasSubstr("1 of 4096 elements are not exact, c[7]: "));
  EXPECT_FALSE(checked.report.exact);
  EXPECT_TRUE(checked.report.guarded);
}

TEST_F(DeviceRunnerTest, ANegativeZeroIsExact) {
  mischief_ = [](float* out, std::size_t elements, const LaunchArguments&) {
    std::transform(out, out + elements, out, [](float x) { return x == 0 ? -0.0F : x; });
  };
  EXPECT_EQ(check().step.outcome, Outcome::ok);
}

TEST_F(DeviceRunnerTest, NanNeverPasses) {
  mischief_ = [this](float* out, std::size_t, const LaunchArguments&) {
    if (runs_ > 1) out[9] = std::nanf("");
  };
  const Runner::Checked checked = check();
  EXPECT_EQ(checked.step.outcome, Outcome::wrong_result);
  EXPECT_THAT(checked.step.detail, HasSubstr("c[9]: nan"));
  EXPECT_TRUE(checked.report.exact) << "the exact run was right";
}

TEST_F(DeviceRunnerTest, ANanThatIsDroppedIsFound) {
  mischief_ = [](float* out, std::size_t elements, const LaunchArguments&) {
    std::transform(out, out + elements, out, [](float x) { return std::isnan(x) ? 0 : x; });
  };
  for (const auto depth : {Runner::CheckDepth::screening, Runner::CheckDepth::finalist}) {
    const Runner::Checked checked = check(depth);
    EXPECT_EQ(checked.step.outcome, Outcome::wrong_result);
    EXPECT_TRUE(checked.step.detail.starts_with("with NaN among the inputs: "))
        << checked.step.detail;
    EXPECT_TRUE(checked.step.detail.ends_with(": 0 != nan")) << checked.step.detail;
    EXPECT_TRUE(checked.report.deterministic) << "all else was right";
  }
}

TEST_F(DeviceRunnerTest, ANanThatSpreadsIsFound) {
  mischief_ = [](float* out, std::size_t elements, const LaunchArguments&) {
    for (std::size_t i = 0; i + 1 < elements; ++i) out[i] += 0 * out[i + 1];
  };
  const Runner::Checked checked = check();
  EXPECT_EQ(checked.step.outcome, Outcome::wrong_result);
  EXPECT_THAT(checked.step.detail, HasSubstr(": nan != "));
}

TEST_F(DeviceRunnerTest, AReferenceThatDropsNanAsksNobodyForIt) {
  reference_drops_nan_ = true;
  mischief_ = [](float* out, std::size_t elements, const LaunchArguments&) {
    std::transform(out, out + elements, out, [](float x) { return std::isnan(x) ? 0 : x; });
  };
  EXPECT_EQ(check().step.outcome, Outcome::ok);
  mischief_ = nullptr;
  EXPECT_EQ(check().step.outcome, Outcome::wrong_result);
}

TEST_F(DeviceRunnerTest, RepeatsWithOtherBitsAreFound) {
  mischief_ = [this](float* out, std::size_t, const LaunchArguments&) {
    if (runs_ == 3) out[5] = std::nextafter(out[5], 100.0F);
  };
  const Runner::Checked checked = check();
  EXPECT_EQ(checked.step.outcome, Outcome::nondeterministic);
  EXPECT_EQ(checked.step.detail,
            "1 of 2 repeats on equal inputs gave other bits than the first run");
  EXPECT_FALSE(checked.report.deterministic);
}

TEST_F(DeviceRunnerTest, WhatIsReadAheadIsChecked) {
  wrong_ahead_ = true;
  EXPECT_EQ(check().step.outcome, Outcome::ok) << "nothing is read ahead";
  ahead_ = {0};
  EXPECT_EQ(check().step.detail,
            "1 of 2 repeats on equal inputs gave other bits than the first run");
  wrong_ahead_ = false;
  EXPECT_EQ(check().step.outcome, Outcome::ok);
}

TEST_F(DeviceRunnerTest, ARareDifferenceIsFoundInAFinalist) {
  mischief_ = [this](float* out, std::size_t, const LaunchArguments&) {
    if (runs_ == 44) out[5] = std::nextafter(out[5], 100.0F);
  };
  EXPECT_EQ(check().step.outcome, Outcome::ok);
  runs_ = 0;
  EXPECT_EQ(check(Runner::CheckDepth::finalist).step.outcome, Outcome::nondeterministic);
}

TEST_F(DeviceRunnerTest, AFinalistRunsWithBothEndsOfItsTensorsAtUnmappedPages) {
  elements_ = 1000;
  std::vector<DevicePointer> places;
  mischief_ = [&](float* out, std::size_t, const LaunchArguments&) {
    if (runs_ > 52) places.push_back(reinterpret_cast<DevicePointer>(out));
  };
  const Runner::Checked checked = check(Runner::CheckDepth::finalist);
  EXPECT_EQ(checked.step.outcome, Outcome::ok) << checked.step.detail;
  ASSERT_EQ(places.size(), 2U);
  constexpr DevicePointer kPage = 4096;  // the fake device's
  EXPECT_EQ((places[0] + 4000) % kPage, 0U);
  EXPECT_EQ(places[1] % kPage, 0U);
}

TEST_F(DeviceRunnerTest, AStrayReadFaultsAtAnUnmappedPage) {
  faults_ = [this](const LaunchArguments& arguments) {
    return arguments.references.empty() && runs_ == 53;  // the second of the two
  };
  const Runner::Checked checked = check(Runner::CheckDepth::finalist);
  EXPECT_EQ(checked.step.outcome, Outcome::illegal_address);
  EXPECT_TRUE(checked.step.detail.starts_with("with the starts of all tensors at unmapped pages: "))
      << checked.step.detail;
  EXPECT_FALSE(checked.report.unmapped);
  EXPECT_EQ(checked.report.repeats, 50);
}

TEST_F(DeviceRunnerTest, ReferencesAreSampledLikeCandidates) {
  const auto runner = must(open());
  const std::vector<Runner::Id> order{Runner::kSmProbe, Runner::kDramProbe, Runner::kSmProbe};
  const auto sampled = must(runner->sample(order));
  ASSERT_EQ(sampled.size(), 3U);
  for (const Runner::Sampled& one : sampled) {
    EXPECT_EQ(one.step.outcome, Outcome::ok) << one.step.detail;
    EXPECT_GT(one.sample.us, 0);
    EXPECT_EQ(one.sample.sm_mhz, 1980);
  }
}

TEST_F(DeviceRunnerTest, TheUseOfTheDeviceIsThatOfSamplesAndChecks) {
  const auto runner = must(open());
  const Runner::Id id = prepare(*runner, 2).value().id;
  ASSERT_TRUE(runner->sample(std::vector{id}));  // its graph is built
  static_cast<void>(runner->take_use());
  const double start_us = clock_.now_us();
  ASSERT_TRUE(runner->sample(std::vector{id, Runner::kSmProbe}));
  clock_.advance(3000);
  ASSERT_TRUE(runner->check(id, Runner::CheckDepth::screening));
  clock_.advance(500);
  ASSERT_TRUE(runner->sample(std::vector{id}));
  const double end_us = clock_.now_us();
  clock_.advance(1000);
  const DeviceUse use = runner->take_use();
  EXPECT_NEAR(use.seconds(), (end_us - start_us) * 1e-6, 1e-12);
  EXPECT_NEAR(use.idle_seconds(), 0.0035, 1e-9);
  EXPECT_NEAR(use.longest_idle_seconds, 0.003, 1e-9);
}

TEST_F(DeviceRunnerTest, FillerOccupiesTheDevice) {
  const auto runner = must(open());
  const Runner::Id id = Runner::kSmProbe;
  ASSERT_TRUE(runner->sample(std::span(&id, 1)));
  static_cast<void>(runner->take_use());
  runner->fill(1e-3);
  const DeviceUse use = runner->take_use();
  EXPECT_GT(use.busy_seconds, 0);
  EXPECT_NEAR(use.idle_seconds(), 0, 1e-12);
}

TEST_F(DeviceRunnerTest, ALaunchGapIsTakenOncePerShape) {
  const auto runner = must(open());
  const Runner::Id id = prepare(*runner, 2).value().id;
  const Runner::Id same = prepare(*runner, 2).value().id;
  const auto gap = must(runner->launch_gap_us(id));
  EXPECT_GT(gap, 0);
  const double before = clock_.now_us();
  EXPECT_EQ(runner->launch_gap_us(same).value(), gap);
  EXPECT_EQ(clock_.now_us(), before);
}

TEST_F(DeviceRunnerTest, LaunchPathsAreMeasuredOnTheTimedBuffers) {
  const auto runner = must(open());
  const Runner::Id id = prepare(*runner, 2).value().id;
  const auto paths = must(runner->launch_paths(id));
  ASSERT_EQ(paths.times.size(), 3U);
  for (const PathTime& time : paths.times) EXPECT_GE(time.period_us, 20) << to_string(time.path);
  EXPECT_EQ(paths.best, KernelPath::graph);
}

TEST_F(DeviceRunnerTest, TheAuditAddsTheTimersToWhatItIsGiven) {
  DeviceRunnerOptions options;
  options.audit = [](const auto& released) {
    released();
    return Audit{{{"power_cap", Trust::b, "300 of 700 W"}}};
  };
  const auto runner = must(open(options));
  const Runner::Id id = Runner::kSmProbe;
  ASSERT_TRUE(runner->sample(std::span(&id, 1)));
  const auto audit = must(runner->audit());
  ASSERT_EQ(audit.rows.size(), 2U);
  EXPECT_EQ(audit.rows[0].check, "power_cap");
  EXPECT_EQ(audit.rows[1].check, "event_timer");
  EXPECT_EQ(audit.trust(), Trust::b);
}

TEST_F(DeviceRunnerTest, OutputsThatGoWrongWhileTimingAreFound) {
  decays_after_ = 5;  // the exact run, three others and that with NaN are right
  const auto runner = must(open());
  const Runner::Id id = prepare(*runner, 2).value().id;
  ASSERT_EQ(runner->check(id, Runner::CheckDepth::screening).value().step.outcome, Outcome::ok);
  ASSERT_TRUE(runner->sample(std::span(&id, 1)));
  const auto checked = must(runner->check_after_timing(id));
  EXPECT_EQ(checked.step.outcome, Outcome::wrong_result);
  EXPECT_TRUE(checked.step.detail.starts_with("after timing: "));
}

TEST_F(DeviceRunnerTest, AnIllegalAddressIsTheCandidatesOutcomeAndLosesTheDevice) {
  failing_ = 3;
  const auto runner = must(open());
  const auto checked =
      must(runner->check(prepare(*runner, 3).value().id, Runner::CheckDepth::screening));
  EXPECT_EQ(checked.step.outcome, Outcome::illegal_address);
  EXPECT_TRUE(runner->lost());
}

TEST_F(DeviceRunnerTest, AReferenceThatIsNotFiniteIsRefused) {
  broken_reference_ = true;
  EXPECT_THAT(open(),
              Fails(ErrorCode::internal, HasSubstr("1 of 4096 elements of c are not finite")));
}

TEST_F(DeviceRunnerTest, APolicyThatCannotBeMeasuredIsRefused) {
  const auto refusal = [this](MeasurePolicy policy) {
    DeviceRunnerOptions options;
    options.policy = policy;
    const auto runner = open(options);
    EXPECT_FALSE(runner);
    EXPECT_EQ(runner.error().code, ErrorCode::invalid_argument);
    return runner.error().message;
  };
  EXPECT_EQ(
      refusal({.l2 = L2State::mixed}),
      "the policy \"l2=mixed launch=graph power=sustained\" cannot be measured: l2=mixed needs "
      "tensors marked \"l2\": \"warm\", and operation toy marks none");
}

TEST_F(DeviceRunnerTest, AWarmInputIsProducedBeforeEverySampleAndChecksHold) {
  Operation marked = toy_.operation();
  marked.tensors[0].warm = true;
  for (const std::int64_t memory : {std::int64_t{1} << 30, std::int64_t{65} << 20}) {
    FakeDeviceOptions device_options;
    device_options.profile = profile_;
    device_options.profile.l2_bytes = 1 << 20;
    device_options.profile.memory_bytes = memory;
    device_options.landscape = [](std::string_view, const ExecutionPlan&) {
      return FakeBehavior{.time_us = 20};
    };
    device_options.compute = [this](const ExecutionPlan& plan, const LaunchArguments& arguments) {
      compute(plan, arguments);
    };
    const auto device = make_fake_device(std::move(device_options), clock_);
    DeviceRunnerOptions options;
    options.policy.l2 = L2State::mixed;
    const auto runner = must(open_device_runner(
        *device, *ops_, BoundProblem::bind(marked, toy_.problem(elements_).problem()).value(),
        *toy_, pool_, options));
    std::set<DevicePointer> inputs;
    std::set<DevicePointer> outputs;
    float* input = nullptr;
    float first = 0;
    bool spoilt = false;
    mischief_ = [&](float* out, std::size_t, const LaunchArguments& arguments) {
      inputs.insert(arguments.tensors[0]);
      outputs.insert(arguments.tensors[1]);
      input = reinterpret_cast<float*>(arguments.tensors[0]);
      first = out[0];
      if (spoilt) input[0] = -1000;
    };
    const Runner::Id id = prepare(*runner, 2).value().id;
    EXPECT_EQ(runner->check(id, Runner::CheckDepth::finalist)->step.detail, "");
    inputs.clear();
    outputs.clear();
    ASSERT_TRUE(runner->sample(std::vector{id}));
    const float right = first;
    EXPECT_EQ(inputs.size(), 1U);
    EXPECT_GT(outputs.size(), 1U) << "these rotate";
    ASSERT_TRUE(runner->sample(std::vector{id}));
    EXPECT_EQ(first, right);
    input[0] = -1000;
    ASSERT_TRUE(runner->sample(std::vector{id}));
    EXPECT_EQ(first, right) << "drawn again";
    EXPECT_EQ(runner->check_after_timing(id)->step.detail, "");
    spoilt = true;
    EXPECT_EQ(runner->check_after_timing(id)->step.outcome, Outcome::out_of_bounds);
    mischief_ = nullptr;
  }
}

TEST_F(DeviceRunnerTest, ASessionOnTheDeviceFindsTheBest) {
  const auto runner = must(open());
  const BoundProblem problem = toy_.problem();
  TuningSession session({.catalog = *toy_,
                         .problem = problem,
                         .profile = profile_,
                         .pool = pool_,
                         .key = {problem.text(), "sm_90", "h200", {}},
                         .environment = {}});
  const auto result = must(session.run(*runner, {.strategy = "exhaustive"}));
  EXPECT_EQ(result.record.winner.choice.configuration.at("A"), 1);
  EXPECT_EQ(result.record.launch_paths.best, KernelPath::graph);
  for (const Trial& trial : result.trials) {
    const bool wrong =
        trial.choice.kernel_template == "toy/plain" && trial.choice.configuration.at("A") == 5;
    EXPECT_EQ(trial.outcome, wrong ? Outcome::wrong_result : Outcome::ok) << trial.choice.id();
  }
}

}  // namespace
}  // namespace kernwright
