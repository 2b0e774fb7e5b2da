#include "tuner/search/search_budget.h"

#include <cmath>
#include <gtest/gtest.h>

namespace kernwright {
namespace {

RaceOptions limits(double seconds, double elapsed) {
  RaceOptions race;
  SearchBudget(seconds).limit(race, 100, elapsed);
  return race;
}

TEST(SearchBudgetTest, ScreeningLeavesTimeForRaceAndRunningAlone) {
  const SearchBudget budget(10);
  EXPECT_FALSE(budget.screened(7.19, false));
  EXPECT_TRUE(budget.screened(7.21, false));
  EXPECT_FALSE(SearchBudget(40).screened(35.1, false)) << "4 s and 0.8 s at most";
  EXPECT_TRUE(SearchBudget(0).screened(0, false));
}

TEST(SearchBudgetTest, ASearchThatHasHardlyLookedMayTakeHalfOfThat) {
  const SearchBudget budget(10);
  EXPECT_FALSE(budget.screened(8.59, true));
  EXPECT_TRUE(budget.screened(8.61, true));
  EXPECT_TRUE(SearchBudget(0).screened(0, true));
}

TEST(SearchBudgetTest, ARaceGetsItsShareWhateverIsLeft) {
  EXPECT_DOUBLE_EQ(limits(10, 7.2).seconds, 2);
  EXPECT_DOUBLE_EQ(limits(10, 12).seconds, 2) << "late";
  EXPECT_DOUBLE_EQ(limits(10, 3).seconds, 4) << "early, but no more than is of use";
  EXPECT_DOUBLE_EQ(limits(10, 4.5).seconds, 2.7) << "blocks may need 2 s";
  EXPECT_DOUBLE_EQ(limits(100, 80).seconds, 20) << "long sessions race longer";
  EXPECT_DOUBLE_EQ(limits(1, 0.7).finals_seconds, 0.1) << "half of it";
}

TEST(SearchBudgetTest, RunningAloneEndsSoonAfterTheBudgetExceptInLongSessions) {
  EXPECT_DOUBLE_EQ(limits(10, 7.2).alone_until, 111);
  EXPECT_DOUBLE_EQ(limits(10, 7.2).extend_until, 110);
  EXPECT_FALSE(limits(59, 50).long_blocks);
  EXPECT_TRUE(limits(60, 50).long_blocks);
  EXPECT_TRUE(std::isinf(limits(60, 50).alone_until));
}

TEST(SearchBudgetTest, SettlingTakesLittleOfIt) {
  EXPECT_DOUBLE_EQ(SearchBudget(10).settle_seconds(), 0.5);
  EXPECT_DOUBLE_EQ(SearchBudget(600).settle_seconds(), 3);
}

}  // namespace
}  // namespace kernwright
