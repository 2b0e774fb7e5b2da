#include "service/tune/stoppable_runner.h"

#include <atomic>
#include <gtest/gtest.h>
#include <vector>

#include "tests/results.h"
#include "tests/tuner/scripted_runner.h"

namespace kernwright {
namespace {

TEST(StoppableRunnerTest, UntilItIsStoppedItIsTheRunner) {
  std::atomic<bool> stop{false};
  ScriptedRace plain({11, 10, 10.2, 10.6}, 7);
  const auto expected = plain.run();
  ScriptedRace wrapped({11, 10, 10.2, 10.6}, 7);
  StoppableRunner runner(wrapped.runner, [&] { return stop.load(); });
  const auto result = race(runner, wrapped.survivors, wrapped.options);
  ASSERT_TRUE(expected && result);
  EXPECT_EQ(winner(*result), winner(*expected));
  EXPECT_EQ(wrapped.runner.calls, plain.runner.calls);
}

TEST(StoppableRunnerTest, ARaceEndsWithTheSampleAtWhichItIsStopped) {
  std::atomic<bool> stop{false};
  ScriptedRace scripted({11, 10, 10.2, 10.6});
  scripted.runner.outcome = [&](Runner::Id, int sample) {
    if (sample == 5) stop = true;
    return Outcome::ok;
  };
  StoppableRunner runner(scripted.runner, [&] { return stop.load(); });
  EXPECT_THAT(race(runner, scripted.survivors, scripted.options), Fails(ErrorCode::unavailable));
  const int calls = scripted.runner.calls;
  EXPECT_LT(calls, 10);
  EXPECT_FALSE(runner.sample(std::vector<Runner::Id>{0}));
  EXPECT_EQ(scripted.runner.calls, calls);
}

TEST(StoppableRunnerTest, StoppedItUsesTheDeviceForNothing) {
  ScriptedRunner scripted;
  StoppableRunner runner(scripted, [] { return true; });
  EXPECT_FALSE(runner.prepare({}, {}));
  EXPECT_FALSE(runner.check(0, Runner::CheckDepth::screening));
  EXPECT_FALSE(runner.check_after_timing(0));
  EXPECT_FALSE(runner.launch_gap_us(0));
  EXPECT_FALSE(runner.launch_paths(0));
  EXPECT_FALSE(runner.audit());
  EXPECT_TRUE(scripted.checks.empty());
}

}  // namespace
}  // namespace kernwright
