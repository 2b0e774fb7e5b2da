#include "device/timing/path_timer.h"

#include <array>
#include <chrono>
#include <gtest/gtest.h>
#include <thread>

#include "tests/doubles/fake_driver.h"

namespace kernwright {
namespace {

TimedCall path(std::string name, std::vector<double> host_us, std::vector<double> period_us) {
  return {std::move(name), {}, std::move(host_us), std::move(period_us)};
}

TEST(BestPathTest, IsThatOfTheShortestPeriod) {
  const std::array paths{path("stream", {1, 1, 1}, {5, 5, 5}), path("graph", {2, 2, 2}, {4, 4, 4}),
                         path("rebind", {3, 3, 3}, {4.2, 4.2, 4.2})};
  EXPECT_EQ(best_path(paths), 1U);
}

TEST(BestPathTest, WithinFivePercentTheHostDecides) {
  const std::array paths{path("stream", {3, 3, 3}, {100, 100, 100}),
                         path("graph", {1, 1, 1}, {104.9, 104.9, 104.9}),
                         path("rebind", {0.5, 0.5, 0.5}, {105.1, 105.1, 105.1})};
  EXPECT_EQ(best_path(paths), 1U);
}

TEST(BestPathTest, WhereTheHostTellsNothingEitherItIsTheFirst) {
  const std::array paths{path("stream", {3, 3, 3}, {2.4, 2.4, 2.4}),
                         path("graph", {1.2, 1.1, 1.3}, {2.41, 2.40, 2.39}),
                         path("rebind", {1.1, 1.2, 1.2}, {2.39, 2.41, 2.40})};
  EXPECT_EQ(best_path(paths), 1U);
  const std::array dearer{path("graph", {1.2, 1.2, 1.2}, {2.4, 2.4, 2.4}),
                          path("rebind", {1.1, 1.1, 1.1}, {2.4, 2.4, 2.4})};
  EXPECT_EQ(best_path(dearer), 1U);
}

TEST(BestPathTest, WhatTheRoundsCannotTellApartTies) {
  const std::vector<double> host(8, 3), less(8, 1);
  const std::vector<double> noise{-6, 6, 0, -3, 3, 0, -2, 2}, other{1, -3, 4, -6, 3, -4, 0, -3};
  const auto about = [](double us, double share, std::vector<double> samples) {
    for (double& sample : samples) sample = us + share * sample;
    return samples;
  };
  const std::array noisy{path("stream", host, about(100, 1, noise)),
                         path("graph", less, about(107, 1, other))};
  EXPECT_EQ(best_path(noisy), 1U);
  const std::array steady{path("stream", host, about(100, 0.1, noise)),
                          path("graph", less, about(107, 0.1, other))};
  EXPECT_EQ(best_path(steady), 0U);
}

TEST(BestPathTest, WhatAllPathsShareIsNoNoise) {
  // Every round is slower than the one before, by more than the paths differ.
  const std::array paths{path("stream", {3, 3, 3, 3}, {100, 110, 120, 130}),
                         path("graph", {1, 1, 1, 1}, {107, 117, 127, 137})};
  EXPECT_EQ(best_path(paths), 0U);
}

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
  // Where another program takes the processor away during the first launches they seem long, and
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
  const Result<void> timed = time_paths(driver_.api(), nullptr, paths_, {});
  ASSERT_FALSE(timed);
  EXPECT_EQ(timed.error().message, "counted: refused");
}

}  // namespace
}  // namespace kernwright
