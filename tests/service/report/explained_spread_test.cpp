#include "service/report/explained_spread.h"

#include <cmath>
#include <gtest/gtest.h>

namespace kernwright {
namespace {

/// 32 trials: A of 2 values sets most of the time, B of 4 little, C nothing, and D has one value.
TrialTable table() {
  TrialTable table;
  for (int i = 0; i < 32; ++i) {
    const int a = i % 2;
    const int b = i / 2 % 4;
    const double noise = 0.01 * ((i * 7) % 5 - 2);
    table.rows.push_back(
        {.choice = {"op/one", Configuration({{"A", a}, {"B", b}, {"C", i / 8}, {"D", 1}})},
         .us = std::exp(1 + 0.5 * a + 0.03 * b + noise)});
  }
  return table;
}

TEST(ExplainedSpreadTest, TheParameterThatSetsTheTimeExplainsIt) {
  const std::vector<ExplainedSpread> explained = explained_spread(table(), "op/one");
  ASSERT_EQ(explained.size(), 3U);
  EXPECT_EQ(explained[0].parameter, "A");
  EXPECT_GT(explained[0].share, 0.95);
  EXPECT_EQ(explained[0].values, 2);
  for (const ExplainedSpread& other : {explained[1], explained[2]}) {
    EXPECT_LT(other.share, 0.05) << other.parameter;
    EXPECT_GE(other.share, 0) << "not below nothing, whatever chance says";
  }
}

TEST(ExplainedSpreadTest, TheTemplateIsOneMoreParameter) {
  TrialTable two = table();
  for (TrialRow row : table().rows) {
    row.choice = {"op/other", Configuration({{"X", 1}})};
    row.us *= 100;
    two.rows.push_back(row);
  }
  const std::vector<ExplainedSpread> explained = explained_spread(two, "op/one");
  ASSERT_EQ(explained.size(), 4U);
  EXPECT_EQ(explained[0].parameter, "template");
  EXPECT_GT(explained[0].share, 0.9);
  EXPECT_EQ(explained[1].parameter, "A") << "of its own trials";
  EXPECT_GT(explained[1].share, 0.95);
}

TEST(ExplainedSpreadTest, FewTrialsAndFailuresExplainNothing) {
  TrialTable few = table();
  few.rows.resize(kFewestExplained - 1);
  EXPECT_TRUE(explained_spread(few, "op/one").empty());
  TrialTable failed = table();
  for (TrialRow& row : failed.rows) row.outcome = Outcome::spilled;
  EXPECT_TRUE(explained_spread(failed, "op/one").empty());
  TrialTable equal = table();
  for (TrialRow& row : equal.rows) row.us = 5;
  for (const ExplainedSpread& one : explained_spread(equal, "op/one")) EXPECT_EQ(one.share, 0);
}

}  // namespace
}  // namespace kernwright
