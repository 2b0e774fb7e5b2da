#include "service/report/comparison.h"

#include <cmath>
#include <gtest/gtest.h>

namespace kernwright {
namespace {

/// A record whose winner took about `us` in 64 rounds, which spread by `spread` of it.
TuningRecord measured(double us, double spread = 0.002) {
  TuningRecord record;
  for (int i = 0; i < 64; ++i) {
    record.winner.measurement.samples_us.push_back(us * (1 + spread * ((i * 37 % 64) / 32.0 - 1)));
  }
  return record;
}

TEST(ComparisonTest, ADifferenceBeyondBothIntervalsIsFasterOrSlower) {
  const Comparison faster = compare_winners(measured(100), measured(95));
  EXPECT_EQ(faster.change, Change::faster);
  EXPECT_NEAR(faster.slowdown.estimate, std::log(0.95), 1e-3);
  EXPECT_LT(faster.slowdown.high, 0);
  EXPECT_EQ(compare_winners(measured(95), measured(100)).change, Change::slower);
}

TEST(ComparisonTest, WhatSessionsDifferByAnywayIsTheSame) {
  EXPECT_EQ(compare_winners(measured(100), measured(100)).change, Change::same);
  const Comparison close = compare_winners(measured(100), measured(100.5));
  EXPECT_EQ(close.change, Change::same);
  EXPECT_LT(close.slowdown.low, 0) << "the interval is that of fresh sessions";
}

TEST(ComparisonTest, SamplesThatSpreadSayNothing) {
  EXPECT_EQ(compare_winners(measured(100, 0.2), measured(103, 0.2)).change, Change::unclear);
}

TEST(ComparisonTest, RoundsThatDoNotCountAreLeftOut) {
  TuningRecord disturbed = measured(100);
  for (int i = 0; i < 16; ++i) {
    disturbed.winner.measurement.samples_us[static_cast<std::size_t>(i)] *= 10;
    disturbed.rounds.dropped.push_back(i);
  }
  EXPECT_EQ(compare_winners(measured(100), disturbed).change, Change::same);
}

TEST(ComparisonTest, EqualPredictionsAreEqual) {
  TuningRecord before;
  before.grade = RecordGrade::predicted;
  before.winner.predicted_us = 50;
  TuningRecord after = before;
  EXPECT_EQ(compare_winners(before, after).change, Change::equal);
  EXPECT_EQ(to_string(Change::equal), "equal");
  after.winner.choice.kernel_template = "matmul/other";
  EXPECT_EQ(compare_winners(before, after).change, Change::unclear);
  after = before;
  after.winner.predicted_us = 51;
  EXPECT_EQ(compare_winners(before, after).change, Change::unclear);
}

TEST(ComparisonTest, APredictionIsUnclearWhateverItSays) {
  TuningRecord predicted;
  predicted.grade = RecordGrade::predicted;
  predicted.winner.predicted_us = 50;
  const Comparison compared = compare_winners(measured(100), predicted);
  EXPECT_EQ(compared.change, Change::unclear);
  EXPECT_NEAR(compared.slowdown.estimate, std::log(0.5), 1e-2);
}

}  // namespace
}  // namespace kernwright
