#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/device/gpu_fixture.h"

namespace kernwright {
namespace {

/// A device that may count; skips with the reason if it may not.
class CountersGpuTest : public GpuTest {
 protected:
  CounterSet count(const ExecutionPlan& plan, const LaunchArguments& arguments) {
    const auto program = load(plan);
    if (!program) return {};
    const Result<CounterSet> counted = device_->count(*program, arguments, [&] {
      ++prepared_;
      return device_->wait();
    });
    if (!counted && counted.error().code == ErrorCode::unavailable) {
      skip_reason_ = counted.error().message;
      return {};
    }
    EXPECT_TRUE(counted) << counted.error().message;
    return counted ? *counted : CounterSet{};
  }

  int prepared_ = 0;
  std::string skip_reason_;
};

TEST_F(CountersGpuTest, TheTimeOfAKernelIsItsOwn) {
  ExecutionPlan plan;
  plan.launches = {launch("spin_us", {1, 1, 1}, {1, 1, 1}, {number(ArgumentKind::int64, 1500)})};
  const CounterSet counted = count(plan, {});
  if (!skip_reason_.empty()) GTEST_SKIP() << skip_reason_;
  ASSERT_TRUE(counted.time_us());
  EXPECT_NEAR(*counted.time_us(), 1500, 50);
  EXPECT_FALSE(counted.version.empty());
  EXPECT_GE(counted.passes, 1);
  EXPECT_EQ(prepared_, 2 * counted.passes);  // the first count of a device is done twice
  // One thread on one SM: neither memory nor tensor cores have anything to do.
  EXPECT_LT(*counted.mean(kDramShareCounter), 5);
  EXPECT_LT(*counted.mean(kOccupancyCounter), 5);
  EXPECT_EQ(counted.kernels.front().name, "spin_us");
}

TEST_F(CountersGpuTest, EveryKernelOfALaunchIsCounted) {
  const ExecutionPlan plan = counting_plan("count_blocks", 1000);
  LaunchArguments arguments;
  arguments.tensors = {allocate(4)};
  arguments.workspace = allocate(256);
  // Again, since one profiler counts everything of a process.
  for (int time = 0; time < 2; ++time) {
    const CounterSet counted = count(plan, arguments);
    if (!skip_reason_.empty()) GTEST_SKIP() << skip_reason_;
    ASSERT_EQ(counted.kernels.size(), 2U);
    EXPECT_EQ(counted.kernels[0].name, "count_blocks");
    EXPECT_EQ(counted.kernels[0].grid, (Extent3{1000, 1, 1}));
    EXPECT_EQ(counted.kernels[1].name, "publish");
    for (const CountedKernel& kernel : counted.kernels) {
      // These are counted in different passes, and on every chip.
      for (const auto name : {kTimeCounter, kDramReadCounter, kIssueCounter, kL2HitCounter}) {
        EXPECT_TRUE(kernel.value(name)) << kernel.name << ' ' << name;
      }
    }
    EXPECT_EQ(download<int>(arguments.tensors[0], 1)[0], 1000);
  }
}

}  // namespace
}  // namespace kernwright
