#include "tuner/finals/interval.h"

#include <cmath>
#include <gtest/gtest.h>

#include "bench/simulation/random_stream.h"
#include "tests/tuner/finals/around.h"

namespace kernwright {
namespace {

Slowdown slowdown_of(std::span<const double> samples, std::span<const double> leader) {
  return paired_interval(log_times(samples), log_times(leader)).slowdown;
}

TEST(IntervalTest, OfEqualSamplesIsZero) {
  const auto samples = around(10, 0.02, 0);
  EXPECT_EQ(slowdown_of(samples, samples), Slowdown{});
}

TEST(IntervalTest, DriftThatBothSufferCancels) {
  std::vector<double> leader;
  std::vector<double> other;
  for (int i = 0; i < 31; ++i) {
    const double drift = 1 + 0.3 * std::sin(i);
    leader.push_back(10 * drift);
    other.push_back(10.2 * drift);
  }
  const Slowdown slowdown = slowdown_of(other, leader);
  EXPECT_NEAR(slowdown.estimate, std::log(1.02), 1e-9);
  EXPECT_NEAR(slowdown.high - slowdown.low, 0, 1e-9);
}

TEST(IntervalTest, TheIntervalIsThatOfOrderStatistics) {
  // For 31 pairs the 7th smallest and largest: 2 P(B(31, 1/2) < 7) = 0.0009, of 8 it is 0.0033.
  const std::vector<double> leader(31, 1);
  std::vector<double> other;
  for (int i = 0; i < 31; ++i) other.push_back(std::exp(i * 12 % 31));  // no order in time
  const Slowdown slowdown = slowdown_of(other, leader);
  EXPECT_NEAR(slowdown.estimate, 15, 1e-9);
  EXPECT_NEAR(slowdown.low, 6, 1e-9);
  EXPECT_NEAR(slowdown.high, 24, 1e-9);
}

TEST(IntervalTest, WhatChangesSlowlyWidensTheInterval) {
  const std::vector<double> leader(200, 1);
  RandomStream random(1);
  std::vector<double> slow;
  double level = 0;
  for (int i = 0; i < 200; ++i) {
    level = 0.7 * level + random.normal();
    slow.push_back(std::exp(0.01 * level));
  }
  std::vector<double> quick;
  for (std::size_t i = 0; i < 200; ++i) quick.push_back(slow[i * 77 % 200]);  // the same, shuffled
  const Slowdown wide = slowdown_of(slow, leader);
  const Slowdown narrow = slowdown_of(quick, leader);
  EXPECT_EQ(wide.estimate, narrow.estimate);
  EXPECT_GT(wide.high - wide.low, 1.5 * (narrow.high - narrow.low));
}

TEST(IntervalTest, FewPairsGiveTheWholeRange) {
  const std::vector<double> leader(3, 1);
  const std::vector<double> other{1.1, 1.2, 1.3};
  const Slowdown slowdown = slowdown_of(other, leader);
  EXPECT_NEAR(slowdown.low, std::log(1.1), 1e-12);
  EXPECT_NEAR(slowdown.high, std::log(1.3), 1e-12);
}

TEST(IntervalTest, RoundsThatDoNotCountAreLeftOut) {
  const std::vector<double> us{1, std::exp(1), std::exp(2)};
  const int dropped[] = {1};
  EXPECT_EQ(log_times(us, dropped), (std::vector<double>{0, 2}));
}

TEST(IntervalTest, BlocksNeedFewerSamplesThanRounds) {
  std::vector<double> slow(12);
  const std::vector<double> fast(slow.size(), 0);
  for (std::size_t i = 0; i < slow.size(); ++i) slow[i] = 1 + static_cast<double>(i * 7 % 12);
  const PairedInterval rounds = paired_interval(slow, fast);
  const PairedInterval blocks = paired_interval(slow, fast, Pairing::blocks);
  EXPECT_TRUE(rounds.known && blocks.known);
  EXPECT_LT(blocks.slowdown.high - blocks.slowdown.low, rounds.slowdown.high - rounds.slowdown.low);
}

}  // namespace
}  // namespace kernwright
