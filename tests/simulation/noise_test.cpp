#include "bench/simulation/noise.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <set>
#include <vector>

namespace kernwright {
namespace {

NoiseModel noise(std::string_view text) { return parse_noise(text).value(); }

TEST(ParseNoiseTest, PartsAddUp) {
  const NoiseModel model = noise("samples=2+drift=1 + outliers");
  EXPECT_DOUBLE_EQ(model.sample_sigma, 0.02);
  EXPECT_DOUBLE_EQ(model.drift_sigma, 0.01);
  EXPECT_DOUBLE_EQ(model.outlier_share, 0.01);
  EXPECT_EQ(model.throttle.per_second, 0);
}

TEST(ParseNoiseTest, NamesWhatItDoesNotKnow) {
  const auto unknown = parse_noise("samples+weather");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("\"weather\""), std::string::npos);
  EXPECT_NE(unknown.error().message.find("throttle"), std::string::npos);
  EXPECT_FALSE(parse_noise("drift=much"));
}

TEST(DeviceNoiseTest, NoNoiseLeavesTheClockAlone) {
  DeviceNoise device(noise("none"), 1);
  EXPECT_EQ(device.at(0).clock, 1);
  EXPECT_EQ(device.at(100).clock, 1);
  EXPECT_EQ(device.at(1000).load, 1);
}

TEST(DeviceNoiseTest, DriftHasTheGivenSpreadAndMemory) {
  DeviceNoise device(noise("drift=1"), 7);
  double square = 0;
  double product = 0;
  double last = 0;
  constexpr int kSteps = 20000;
  for (int i = 0; i < kSteps; ++i) {
    const double now = std::log(device.at(3.0 * i).clock);  // one tau apart
    square += now * now;
    product += now * last;
    last = now;
  }
  EXPECT_NEAR(std::sqrt(square / kSteps), 0.01, 0.0005);
  EXPECT_NEAR(product / square, std::exp(-1.0), 0.03);
}

TEST(DeviceNoiseTest, ThrottlesAsOftenAndAsDeepAsAsked) {
  DeviceNoise device(noise("throttle=0.1"), 3);
  int slow = 0;
  int episodes = 0;
  bool was_slow = false;
  constexpr int kSteps = 1000000;  // of 10 ms
  for (int i = 0; i < kSteps; ++i) {
    const double clock = device.at(0.01 * i).clock;
    const bool is_slow = clock < 1;
    if (is_slow) {
      EXPECT_GE(clock, 0.90);
      EXPECT_LE(clock, 0.97);
    }
    slow += is_slow ? 1 : 0;
    episodes += is_slow && !was_slow ? 1 : 0;
    was_slow = is_slow;
  }
  // Every 10 s plus the 1.65 s that one lasts.
  EXPECT_NEAR(episodes, 10000 / 11.65, 100);
  EXPECT_NEAR(slow / (1.0 * kSteps), 1.65 / 11.65, 0.02);
}

TEST(DeviceNoiseTest, AnEpisodeCanBePlacedAndLoadLeavesTheClock) {
  NoiseModel model;
  model.foreign_load = {.slowdown = {0.5, 0.5}, .seconds = {2, 2}, .first_at_seconds = 10};
  DeviceNoise device(model, 1);
  EXPECT_EQ(device.at(9.9).load, 1);
  EXPECT_EQ(device.at(10.1).load, 1.5);
  EXPECT_EQ(device.at(11.9).clock, 1);
  EXPECT_EQ(device.at(12.1).load, 1);
}

TEST(DeviceNoiseTest, TheClockFollowsTheAverageDraw) {
  DeviceNoise device(noise("power_lag=0.02"), 1);
  EXPECT_NEAR(device.run(0.1, 0.0001), 0, 0.001) << "it takes a while";
  device.run(0.1, 0.2);
  EXPECT_NEAR(device.run(0.1, 0.01), 0.1, 1e-4);
  EXPECT_NEAR(device.run(0, 0.02), 0.1 * (1 - std::exp(-1)), 1e-4) << "the mean over its way down";
  EXPECT_NEAR(device.run(0, 0.0001), 0.1 * std::exp(-1), 0.001);
  for (int turn = 0; turn < 200; ++turn) {
    device.run(0, 0.001);
    device.run(0.1, 0.001);
  }
  EXPECT_NEAR(device.run(0, 0.001), 0.05, 0.003) << "those that take turns share it";
}

TEST(CandidateNoiseTest, StepsAndFailuresHaveTheirShares) {
  const NoiseModel model = noise("power_steps=30+failures=10");
  int steps = 0;
  std::set<Outcome> failures;
  int failed = 0;
  constexpr std::size_t kCandidates = 10000;
  for (std::size_t i = 0; i < kCandidates; ++i) {
    const CandidateNoise one = CandidateNoise::draw(model, 5, i, false);
    if (one.power_step > 0) {
      ++steps;
      EXPECT_GE(one.power_step, 0.05);
      EXPECT_LE(one.power_step, 0.17);
    }
    if (one.failure != Outcome::ok) {
      ++failed;
      failures.insert(one.failure);
    }
  }
  EXPECT_NEAR(steps, 3000, 200);
  EXPECT_NEAR(failed, 1000, 120);
  EXPECT_EQ(failures.size(), 8U) << "every way to fail that leaves the device";
}

TEST(CandidateNoiseTest, TheBestAloneCanStep) {
  const NoiseModel model = noise("best_step");
  EXPECT_GT(CandidateNoise::draw(model, 1, 4, true).power_step, 0);
  EXPECT_EQ(CandidateNoise::draw(model, 1, 4, false).power_step, 0);
}

}  // namespace
}  // namespace kernwright
