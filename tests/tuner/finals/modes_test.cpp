#include "tuner/finals/modes.h"

#include <cmath>
#include <gtest/gtest.h>

namespace kernwright {
namespace {

/// Every third sample is `slower` above the others, which differ a little.
std::vector<double> two_groups(double slower) {
  std::vector<double> logs;
  for (int i = 0; i < 30; ++i) logs.push_back(0.001 * std::sin(i) + (i % 3 == 0 ? slower : 0));
  return logs;
}

TEST(ModesTest, TheFastGroupIsMovedToTheSlowOne) {
  const SlowMode judged = slow_mode(two_groups(0.1), {});
  EXPECT_TRUE(judged.bimodal);
  for (const double log : judged.logs) EXPECT_NEAR(log, 0.1, 0.003);
}

TEST(ModesTest, GroupsThatAreCloseAreOne) {
  const std::vector<double> logs = two_groups(0.9 * kModeGap);
  const SlowMode judged = slow_mode(logs, {});
  EXPECT_FALSE(judged.bimodal);
  EXPECT_EQ(judged.logs, logs);
}

TEST(ModesTest, WhatSlowsTheOthersDownTooMakesNoGroup) {
  const std::vector<double> logs = two_groups(0.1);
  const std::span<const double> others[] = {logs};
  EXPECT_FALSE(slow_mode(logs, others).bimodal);
}

TEST(ModesTest, FewOutliersAreNoGroup) {
  std::vector<double> logs = two_groups(0);
  for (std::size_t i = 0; i < 5; ++i) logs[i * 5] += 0.5;
  EXPECT_FALSE(slow_mode(logs, {}).bimodal);
}

}  // namespace
}  // namespace kernwright
