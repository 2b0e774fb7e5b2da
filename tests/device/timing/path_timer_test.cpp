#include "device/timing/path_timer.h"

#include <array>
#include <chrono>
#include <gtest/gtest.h>
#include <thread>

#include "tests/doubles/fake_driver.h"
#include "tests/results.h"

namespace kernwright {
namespace {

/// Paths whose launches are counted and take the host a while.
class TimePathsTest : public ::testing::Test {
 protected:
  std::array<TimedCall, 2> paths_{counted(0), counted(1)};
  std::array<int, 2> launches_{};
  std::chrono::microseconds pause_{0};
  FakeDriver driver_;

 private:
  TimedCall counted(std::size_t i) {
    return {.name = "counted",
            .launch = [this, i]() -> Result<void> {
              ++launches_[i];
              if (pause_.count() > 0) std::this_thread::sleep_for(pause_);
              return {};
            },
            .host_us = {},
            .period_us = {}};
  }
};

TEST_F(TimePathsTest, GivesOneSampleOfEachPathPerRound) {
  constexpr int kMost = 3 * (1 + 4 + 2 + 32 + 512);
  // If another program takes the processor away during the first launches, they seem long, and
  // fewer follow.
  for (int attempt = 0; attempt < 100 && launches_[0] != kMost; ++attempt) {
    launches_ = {};
    ASSERT_TRUE(time_paths(driver_.api(), nullptr, paths_, {.rounds = 3}));
    for (const TimedCall& path : paths_) {
      EXPECT_EQ(path.host_us.size(), 3U);
      EXPECT_EQ(path.period_us.size(), 3U);
    }
    ASSERT_LE(launches_[0], kMost);
  }
  EXPECT_EQ(launches_[0], kMost);
}

TEST_F(TimePathsTest, EndsWithItsSecondsButNotBeforeOneRound) {
  pause_ = std::chrono::milliseconds(2);
  ASSERT_TRUE(time_paths(driver_.api(), nullptr, paths_,
                         {.rounds = 100, .seconds = 1e-3, .train_us = 3'000}));
  EXPECT_EQ(paths_[0].period_us.size(), 1U);
  EXPECT_EQ(paths_[1].period_us.size(), 1U);
  EXPECT_EQ(launches_[0], 1 + 2 + 2 + 2) << "what takes long is launched seldom";
  EXPECT_GE(paths_[0].median_host_us(), 2'000);
}

TEST_F(TimePathsTest, AFailureNamesItsPath) {
  paths_[1].launch = [] { return Error{ErrorCode::device, "refused"}; };
  EXPECT_THAT(time_paths(driver_.api(), nullptr, paths_, {}), Fails("counted: refused"));
}

}  // namespace
}  // namespace kernwright
