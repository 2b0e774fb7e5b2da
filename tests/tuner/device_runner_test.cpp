#include "tuner/device_runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <gtest/gtest.h>

#include "compile/render.h"
#include "device/fake_device.h"
#include "tests/tuner/toy.h"
#include "tuner/buffer_sets.h"
#include "tuner/checker.h"
#include "tuner/element.h"

namespace kernwright {
namespace {

TEST(SetCountTest, ColdSetsPassThreeTimesTheL2) {
  EXPECT_EQ((SetCount{1 << 20, 50 << 20, std::int64_t{64} << 30, true}.count()), 150);
  EXPECT_EQ((SetCount{std::int64_t{1} << 30, 50 << 20, std::int64_t{64} << 30, true}.count()), 2);
  EXPECT_EQ((SetCount{256, 50 << 20, std::int64_t{64} << 30, true}.count()), 512);
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
  const Operation& matmul = *catalog->operation("matmul").value();
  const Problem problem =
      matmul.normalize(Problem::parse("matmul m=8 n=8 k=1024 dtype=bf16").value()).value();
  const auto shapes = matmul.tensor_shapes(problem).value();
  const ErrorBound bound = error_bound(matmul, problem, shapes, shapes.back());
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
      return behavior;
    };
    options.compute = [this](const ExecutionPlan& plan, const LaunchArguments& arguments) {
      compute(plan, arguments);
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
      copy(arguments.magnitudes[1]);
      std::transform(magnitude, magnitude + elements, magnitude,
                     [](float x) { return std::fabs(x); });
      if (broken_reference_) {
        reinterpret_cast<float*>(arguments.references[1])[3] = std::nanf("");
      }
      return;
    }
    copy(arguments.tensors[1]);
    ++runs_;
    if (skip_last_) {  // leaves what was there before
      std::memset(reinterpret_cast<float*>(arguments.tensors[1]) + (elements - 1), 0xFF, 4);
    }
    if (decays_after_ > 0 && runs_ > decays_after_) {
      reinterpret_cast<float*>(arguments.tensors[1])[0] += 1;
    }
  }

  Result<std::unique_ptr<Runner>> open() {
    return open_device_runner(*device_, *ops_, toy_.operation(), toy_.problem(), *toy_, pool_, {});
  }
  /// Prepares the configuration `A`=a of toy/plain.
  Result<Runner::Prepared> prepare(Runner& runner, int a) {
    const Candidate& candidate = candidates_.emplace_back(
        make_candidate(*(*toy_).kernel_template("toy/plain").value(), toy_.operation(),
                       toy_.problem(), Configuration({{"A", a}, {"B", 1}, {"R", 1}}), profile_)
            .value());
    const CompileResult kernel = pool_.submit(render(candidate, *toy_, 90)).get();
    return runner.prepare(candidate, *kernel.value());
  }

  ToyCatalog toy_;
  DeviceProfile profile_ = find_profile("h200").value();
  ManualClock clock_;
  CompilePool pool_{std::make_shared<FakeCompiler>(), {.threads = 1}};
  std::unique_ptr<DataOps> ops_ = make_host_data_ops();
  std::deque<Candidate> candidates_;
  bool broken_reference_ = false;
  bool skip_last_ = false;
  int failing_ = -2;
  int runs_ = 0;
  int decays_after_ = 0;
  std::unique_ptr<Device> device_;
};

TEST_F(DeviceRunnerTest, ARightCandidatePassesAndIsTimed) {
  const auto runner = open();
  ASSERT_TRUE(runner) << runner.error().message;
  const auto prepared = prepare(*runner.value(), 2);
  ASSERT_TRUE(prepared);
  ASSERT_EQ(prepared.value().step.outcome, Outcome::ok);
  const auto checked = runner.value()->check(prepared.value().id, Runner::CheckDepth::screening);
  ASSERT_TRUE(checked);
  EXPECT_EQ(checked.value().step.outcome, Outcome::ok) << checked.value().step.detail;
  EXPECT_EQ(checked.value().report.elements, 4096);
  EXPECT_EQ(checked.value().report.max_error, 0);
  const Runner::Id id = prepared.value().id;
  const auto sampled = runner.value()->sample(std::vector<Runner::Id>(5, id));
  ASSERT_TRUE(sampled);
  ASSERT_EQ(sampled.value().size(), 5U);
  for (const Runner::Sampled& one : sampled.value()) EXPECT_EQ(one.sample.us, 20.64);
}

TEST_F(DeviceRunnerTest, SamplesTakeAboutTheTimeAimedAt) {
  const auto runner = open();
  ASSERT_TRUE(runner);
  const Runner::Id id = prepare(*runner.value(), 2).value().id;
  ASSERT_TRUE(runner.value()->sample(std::span(&id, 1)));
  const double before = clock_.now_us();
  ASSERT_TRUE(runner.value()->sample(std::span(&id, 1)));
  // 3 MB over 32 KB: 96 sets; 1.5 ms is nearer to one rotation of 20.64 us units than to two.
  EXPECT_NEAR(clock_.now_us() - before, 96 * 20.64, 1);
}

TEST_F(DeviceRunnerTest, AWrongResultNamesTheElementAndBothValues) {
  const auto runner = open();
  ASSERT_TRUE(runner);
  const auto prepared = prepare(*runner.value(), 5);
  const auto checked = runner.value()->check(prepared.value().id, Runner::CheckDepth::screening);
  ASSERT_TRUE(checked);
  EXPECT_EQ(checked.value().step.outcome, Outcome::wrong_result);
  EXPECT_EQ(checked.value().report.mismatches, 4096);
  EXPECT_NE(checked.value().step.detail.find("c[0]: -77 != "), std::string::npos)
      << checked.value().step.detail;
}

TEST_F(DeviceRunnerTest, AnElementThatIsNotWrittenIsFound) {
  skip_last_ = true;
  const auto runner = open();
  ASSERT_TRUE(runner);
  const auto checked =
      runner.value()->check(prepare(*runner.value(), 2).value().id, Runner::CheckDepth::screening);
  ASSERT_TRUE(checked);
  EXPECT_EQ(checked.value().step.outcome, Outcome::wrong_result);
  EXPECT_EQ(checked.value().report.mismatches, 1);
  EXPECT_NE(checked.value().report.first_mismatch.find("c[4095]: "), std::string::npos);
}

TEST_F(DeviceRunnerTest, OutputsThatGoWrongWhileTimingAreFound) {
  decays_after_ = 2;  // both checked runs are right
  const auto runner = open();
  ASSERT_TRUE(runner);
  const Runner::Id id = prepare(*runner.value(), 2).value().id;
  ASSERT_EQ(runner.value()->check(id, Runner::CheckDepth::screening).value().step.outcome,
            Outcome::ok);
  ASSERT_TRUE(runner.value()->sample(std::span(&id, 1)));
  const auto checked = runner.value()->check_after_timing(id);
  ASSERT_TRUE(checked);
  EXPECT_EQ(checked.value().step.outcome, Outcome::wrong_result);
  EXPECT_TRUE(checked.value().step.detail.starts_with("after timing: "));
}

TEST_F(DeviceRunnerTest, AnIllegalAddressIsTheCandidatesOutcomeAndLosesTheDevice) {
  failing_ = 3;
  const auto runner = open();
  ASSERT_TRUE(runner);
  const auto checked =
      runner.value()->check(prepare(*runner.value(), 3).value().id, Runner::CheckDepth::screening);
  ASSERT_TRUE(checked);
  EXPECT_EQ(checked.value().step.outcome, Outcome::illegal_address);
  EXPECT_TRUE(runner.value()->lost());
}

TEST_F(DeviceRunnerTest, AReferenceThatIsNotFiniteIsRefused) {
  broken_reference_ = true;
  const auto runner = open();
  ASSERT_FALSE(runner);
  EXPECT_EQ(runner.error().code, ErrorCode::internal);
  EXPECT_NE(runner.error().message.find("1 of 4096 elements of c are not finite"),
            std::string::npos)
      << runner.error().message;
}

TEST_F(DeviceRunnerTest, APolicyThatCannotBeMeasuredIsRefused) {
  DeviceRunnerOptions options;
  options.policy.l2 = L2State::mixed;
  const auto runner =
      open_device_runner(*device_, *ops_, toy_.operation(), toy_.problem(), *toy_, pool_, options);
  ASSERT_FALSE(runner);
  EXPECT_EQ(runner.error().code, ErrorCode::invalid_argument);
}

TEST_F(DeviceRunnerTest, ASessionOnTheDeviceFindsTheBest) {
  const auto runner = open();
  ASSERT_TRUE(runner);
  ScopedTempDir cache;
  const ArtifactStore artifacts(cache / "artifacts");
  TuningOptions options;
  options.strategy = "exhaustive";
  const Problem problem = toy_.problem();
  TuningSession session(*toy_, toy_.operation(), problem, profile_,
                        {problem.text(), "sm_90", "h200", {}}, {}, pool_, *runner.value(),
                        artifacts, options);
  const auto result = session.run();
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result.value().record.winner.configuration.at("A"), 1);
  for (const Trial& trial : result.value().trials) {
    const bool wrong = trial.kernel_template == "toy/plain" && trial.configuration.at("A") == 5;
    EXPECT_EQ(trial.outcome, wrong ? Outcome::wrong_result : Outcome::ok) << trial.id();
  }
}

}  // namespace
}  // namespace kernwright
