#include "tuner/audit/launch_probe.h"

#include <gtest/gtest.h>

#include "support/files.h"
#include "tests/doubles/fake_device.h"
#include "tests/results.h"
#include "tests/temp_dir.h"
#include "tests/tuner/toy.h"

namespace kernwright {
namespace {

/// A device whose launches cost what the test says.
class LaunchProbeTest : public ::testing::Test {
 protected:
  LaunchProbeTest() {
    FakeDeviceOptions options;
    options.profile = find_profile("h200").value();
    options.landscape = [this](std::string_view cubin, const ExecutionPlan& plan) {
      EXPECT_NE(cubin.find("void empty()"), std::string_view::npos);
      return FakeBehavior{.time_us = plan.launches.empty() ? 5 : 1.25, .outcome = outcome_};
    };
    options.sm_mhz = [this](double seconds) { return seconds < recovers_ ? 1320 : 1980; };
    device_ = make_fake_device(options, clock_);
  }
  Result<LaunchCost> measure(double usual_sm_mhz = 0) {
    auto probe = LaunchProbe::make(*device_, pool_, [this] { return clock_.now_us(); });
    if (!probe) return probe.error();
    return probe->measure(usual_sm_mhz);
  }

  Outcome outcome_ = Outcome::ok;
  double recovers_ = 0;  ///< seconds: until then the power limit holds the clock down
  ManualClock clock_;
  std::unique_ptr<Device> device_;
  std::shared_ptr<FakeCompiler> compiler_ = std::make_shared<FakeCompiler>();
  CompilePool pool_{compiler_, {.threads = 1}};
};

TEST_F(LaunchProbeTest, MeasuresPerKernel) {
  const LaunchCost cost = must(measure());
  EXPECT_DOUBLE_EQ(cost.graph_node_us, 1.25);
  EXPECT_DOUBLE_EQ(cost.event_pair_us, 5);
  EXPECT_NEAR(cost.stream_launch_us, 1.25, 1e-9);
  EXPECT_EQ(cost.interrupted_share, 0);
}

TEST_F(LaunchProbeTest, AClockThatThePowerLimitHeldDownMayRecover) {
  recovers_ = 0.2;
  Result<LaunchCost> cost = measure();
  ASSERT_TRUE(cost) << cost.error().message;
  EXPECT_NEAR(cost->graph_node_us, 1.25 * 1.5, 1e-9);
  EXPECT_EQ(cost->sm_mhz, 1320);

  cost = measure(1980);
  ASSERT_TRUE(cost) << cost.error().message;
  EXPECT_NEAR(cost->graph_node_us, 1.25, 1e-9);
  EXPECT_EQ(cost->sm_mhz, 1980);
}

TEST_F(LaunchProbeTest, AClockThatStaysLowIsNotWaitedForLong) {
  recovers_ = 1000;
  const LaunchCost cost = must(measure(1980));
  EXPECT_NEAR(cost.graph_node_us, 1.25 * 1.5, 1e-9);
  EXPECT_LT(clock_.now_us(), 1e6);
}

TEST_F(LaunchProbeTest, AFailureIsAnError) {
  outcome_ = Outcome::launch_failed;
  EXPECT_FALSE(measure());
  compiler_->behave = [](const CompileRequest&, const CompiledKernel&) {
    return Error{ErrorCode::compile, "no"};
  };
  const Result<LaunchCost> cost = measure();
  ASSERT_FALSE(cost);
}

TEST_F(LaunchProbeTest, TheProfileOfTheSkuHasItsCosts) {
  const LaunchCost cost = launch_cost_of(find_profile("h200").value());
  EXPECT_GT(cost.graph_node_us, 0.2);
  EXPECT_LT(cost.graph_node_us, 5);
  EXPECT_GT(cost.stream_launch_us, 0.5);
  EXPECT_EQ(launch_cost_of(find_profile("a10g").value()), LaunchCost{});
}

TEST(LaunchBaselineTest, IsKeptPerGpuAndDriver) {
  const ScopedTempDir dir;
  const DeviceIdentity gpu{.uuid = "GPU-1", .driver_version = "580.1", .ordinal = 0};
  const LaunchBaseline baseline(dir.path(), gpu);
  EXPECT_FALSE(baseline.load());
  const LaunchCost cost{1.1, 2.1, 5.25, 0, 1980};
  ASSERT_TRUE(baseline.store(cost));
  EXPECT_EQ(baseline.load(), cost);
  EXPECT_EQ(baseline.path(), dir / "probe" / "GPU-1-580.1.json");

  DeviceIdentity other = gpu;
  other.driver_version = "CUDA 13/0";
  EXPECT_FALSE(LaunchBaseline(dir.path(), other).load());
  EXPECT_EQ(LaunchBaseline(dir.path(), other).path().parent_path(), dir / "probe");
}

TEST(LaunchBaselineTest, ABrokenOneIsNone) {
  const ScopedTempDir dir;
  const LaunchBaseline baseline(dir.path(), {"GPU-1", "580.1", 0});
  for (const char* text : {"", "[]", "{\"graph_node_us\":1}", "{\"graph_node_us\":\"1\"}"}) {
    ASSERT_TRUE(publish_file(baseline.path(), text));
    EXPECT_FALSE(baseline.load()) << text;
  }
}

}  // namespace
}  // namespace kernwright
