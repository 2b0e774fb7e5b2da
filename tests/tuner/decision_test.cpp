#include "tuner/decision.h"

#include <cmath>
#include <gtest/gtest.h>

namespace kernwright {
namespace {

std::vector<double> around(double us, double noise, int phase) {
  std::vector<double> samples;
  samples.reserve(31);
  for (int i = 0; i < 31; ++i) samples.push_back(us * (1 + noise * std::sin(2.399 * i + phase)));
  return samples;
}

Finalist finalist(std::string id, std::vector<double> samples, bool is_default = false,
                  int registers = 64) {
  return {{.id = std::move(id), .is_default = is_default, .registers = registers},
          std::move(samples)};
}

std::size_t winner(std::span<const Finalist> finalists) { return decide(finalists, {}).winner; }

TEST(PairedSlowdownTest, OfEqualSamplesIsZero) {
  const auto samples = around(10, 0.02, 0);
  const Slowdown slowdown = paired_slowdown(samples, samples);
  EXPECT_EQ(slowdown.estimate, 0);
  EXPECT_EQ(slowdown.low, 0);
  EXPECT_EQ(slowdown.high, 0);
}

TEST(PairedSlowdownTest, DriftThatBothSufferCancels) {
  std::vector<double> leader;
  std::vector<double> other;
  for (int i = 0; i < 31; ++i) {
    const double drift = 1 + 0.3 * std::sin(i);
    leader.push_back(10 * drift);
    other.push_back(10.2 * drift);
  }
  const Slowdown slowdown = paired_slowdown(other, leader);
  EXPECT_NEAR(slowdown.estimate, std::log(1.02), 1e-9);
  EXPECT_NEAR(slowdown.high - slowdown.low, 0, 1e-9);
}

TEST(PairedSlowdownTest, TheIntervalIsThatOfOrderStatistics) {
  // For 31 pairs the 7th smallest and largest: 2 P(B(31, 1/2) < 7) = 0.0009, of 8 it is 0.0033.
  std::vector<double> leader(31, 1);
  std::vector<double> other;
  other.reserve(31);
  for (int i = 0; i < 31; ++i) other.push_back(std::exp(i * 12 % 31));  // no order in time
  const Slowdown slowdown = paired_slowdown(other, leader);
  EXPECT_NEAR(slowdown.estimate, 15, 1e-9);
  EXPECT_NEAR(slowdown.low, 6, 1e-9);
  EXPECT_NEAR(slowdown.high, 24, 1e-9);
}

TEST(PairedSlowdownTest, FewPairsGiveTheWholeRange) {
  const std::vector<double> leader(3, 1);
  const std::vector<double> other{1.1, 1.2, 1.3};
  const Slowdown slowdown = paired_slowdown(other, leader);
  EXPECT_NEAR(slowdown.low, std::log(1.1), 1e-12);
  EXPECT_NEAR(slowdown.high, std::log(1.3), 1e-12);
}

TEST(ChooseWinnerTest, AClearlyFasterOneBeatsTheDefault) {
  const Finalist all[] = {finalist("default", around(10, 0.005, 0), true),
                          finalist("fast", around(9.5, 0.005, 1))};
  EXPECT_EQ(winner(all), 1U);
}

TEST(ChooseWinnerTest, WithinTheNoiseTheDefaultStays) {
  const Finalist all[] = {finalist("a", around(9.9, 0.05, 1)),
                          finalist("default", around(10, 0.05, 0), true)};
  EXPECT_EQ(winner(all), 1U);
}

TEST(ChooseWinnerTest, OthersTieOnlyWithinHalfAPercent) {
  const Finalist all[] = {finalist("a", around(10, 0.0001, 1), false, 128),
                          finalist("b", around(10.02, 0.0001, 0), false, 64),
                          finalist("c", around(10.1, 0.0001, 0), false, 32)};
  EXPECT_EQ(winner(all), 1U);
}

TEST(ChooseWinnerTest, AWarningLosesTies) {
  Finalist warned = finalist("a", around(10, 0, 0), false, 32);
  warned.traits.warned = true;
  const Finalist all[] = {warned, finalist("b", around(10, 0, 0), false, 64)};
  EXPECT_EQ(winner(all), 1U);
}

TEST(ChooseWinnerTest, FullTiesDoNotDependOnTheOrder) {
  const Finalist a = finalist("a", around(10, 0, 0));
  const Finalist b = finalist("b", around(10, 0, 0));
  const Finalist forward[] = {a, b};
  const Finalist backward[] = {b, a};
  EXPECT_EQ(forward[winner(forward)].traits.id, backward[winner(backward)].traits.id);
}

}  // namespace
}  // namespace kernwright
