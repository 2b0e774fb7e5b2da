#include "model/result/counters.h"

#include <gtest/gtest.h>
#include <limits>
#include <set>
#include <string>

namespace kernwright {
namespace {

CountedKernel kernel(double ns, double share) {
  return {"k",
          {1, 1, 1},
          {{std::string(kTimeCounter), ns, ""}, {std::string(kDramShareCounter), share, ""}}};
}

TEST(CountersTest, EveryCounterHasANameAUnitAndAMeaningOfItsOwn) {
  std::set<std::string_view> names;
  for (const Counter& counter : counters()) {
    EXPECT_TRUE(names.insert(counter.name).second) << counter.name;
    EXPECT_FALSE(counter.unit.empty());
    EXPECT_FALSE(counter.meaning.empty());
    EXPECT_EQ(counter.unit == "%", counter.highest == 100) << counter.name;
    EXPECT_EQ(counter.unit == "warps", !stall_reason(counter.name).empty()) << counter.name;
  }
}

TEST(CountersTest, AReasonIsReadFromTheName) {
  EXPECT_EQ(stall_reason("smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio"), "gmma");
  EXPECT_EQ(stall_reason(kTimeCounter), "");
}

TEST(CountersTest, TimesAndBytesAddAndSharesAreWeightedByTime) {
  CounterSet set;
  set.kernels = {kernel(3000, 80), kernel(1000, 40)};
  EXPECT_EQ(set.time_us(), 4);
  EXPECT_EQ(set.mean(kDramShareCounter), 70);
  set.kernels[1].values.pop_back();
  EXPECT_EQ(set.mean(kDramShareCounter), std::nullopt) << "of one kernel it is not known";
  EXPECT_EQ(set.time_us(), 4);
  EXPECT_EQ(CounterSet{}.time_us(), std::nullopt);
}

TEST(CountersTest, WhatCannotBeIsMarked) {
  EXPECT_EQ(judged(kL2HitCounter, 100).reason, "");
  EXPECT_NE(judged(kL2HitCounter, 100.1).reason, "");
  EXPECT_EQ(judged(kL2HitCounter, 516).value, 516);
  EXPECT_NE(judged(kDramReadCounter, -1).reason, "");
  EXPECT_EQ(judged(kDramReadCounter, 1e12).reason, "");
  EXPECT_FALSE(judged(kTimeCounter, std::numeric_limits<double>::infinity()).value);
}

}  // namespace
}  // namespace kernwright
