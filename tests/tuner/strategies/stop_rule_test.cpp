#include "tuner/strategies/stop_rule.h"

#include <gtest/gtest.h>

namespace kernwright {
namespace {

void add(StopRule& rule, int count, std::optional<double> us) {
  for (int i = 0; i < count; ++i) rule.add(us);
}

TEST(StopRuleTest, PatienceGrowsWithTheBudget) {
  EXPECT_EQ(StopRule(5, 0).patience(), 128);
  EXPECT_EQ(StopRule(60, 0).patience(), 128);
  EXPECT_EQ(StopRule(120, 0).patience(), 256);
}

TEST(StopRuleTest, StopsWhereNothingImprovedForAsLongAsPatienceLasts) {
  StopRule rule(10, 0);
  add(rule, 1, 100);
  add(rule, 127, 101);
  EXPECT_EQ(rule.reason(), "");
  rule.add(101);
  EXPECT_EQ(rule.reason(), "no_improvement");
}

TEST(StopRuleTest, AnImprovementWorthHavingStartsThePatienceAnew) {
  StopRule rule(10, 0);
  add(rule, 128, 100);
  rule.add(99.4);
  add(rule, 127, 100);
  EXPECT_EQ(rule.reason(), "");
  rule.add(100);
  EXPECT_EQ(rule.reason(), "no_improvement");
}

TEST(StopRuleTest, SmallImprovementsCountTogether) {
  StopRule rule(10, 0);
  rule.add(100);
  for (int i = 1; i <= 160; ++i) rule.add(100 - 0.1 * i);
  EXPECT_EQ(rule.reason(), "");
}

TEST(StopRuleTest, FailuresAreResultsButNoTimes) {
  StopRule rule(10, 0);
  add(rule, 200, std::nullopt);
  EXPECT_EQ(rule.reason(), "") << "nothing works yet";
  rule.add(100);
  add(rule, 128, std::nullopt);
  EXPECT_EQ(rule.reason(), "no_improvement");
}

TEST(StopRuleTest, AThoroughSearchLooksAtMore) {
  StopRule rule(180, 0);
  add(rule, 256, 100);
  EXPECT_EQ(rule.reason(), "");
  rule.add(100);
  EXPECT_EQ(rule.reason(), "no_improvement");
}

TEST(StopRuleTest, StopsAtTheRoofline) {
  StopRule rule(30, 100);
  rule.add(104);
  EXPECT_EQ(rule.reason(), "");
  rule.add(103);
  EXPECT_EQ(rule.reason(), "roofline");
}

}  // namespace
}  // namespace kernwright
