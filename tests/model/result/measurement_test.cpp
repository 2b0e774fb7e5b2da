#include "model/result/measurement.h"

#include <cmath>
#include <gtest/gtest.h>

namespace kernwright {
namespace {

TEST(MeasurementTest, MedianIsTheMiddleOrTheMeanOfTwo) {
  EXPECT_DOUBLE_EQ((Measurement{{3, 1, 2}}.median_us()), 2);
  EXPECT_DOUBLE_EQ((Measurement{{4, 1, 3, 2}}.median_us()), 2.5);
  EXPECT_DOUBLE_EQ((Measurement{{7}}.median_us()), 7);
}

TEST(MeasurementTest, SpreadIsTheMedianDeviation) {
  EXPECT_DOUBLE_EQ((Measurement{{1, 2, 3, 4, 100}}.mad_us()), 1);
  EXPECT_DOUBLE_EQ((Measurement{{5, 5, 5}}.mad_us()), 0);
  EXPECT_DOUBLE_EQ((Measurement{{3, 1, 2}}.min_us()), 1);
}

TEST(MeasurementTest, NothingMeasuredNeverWins) {
  const Measurement nothing;
  EXPECT_TRUE(std::isinf(nothing.median_us()));
  EXPECT_TRUE(std::isinf(nothing.min_us()));
  EXPECT_TRUE(std::isinf(nothing.mad_us()));
}

TEST(OutcomeTest, SpellingsComeBack) {
  for (int i = 0; i <= static_cast<int>(Outcome::device_lost); ++i) {
    EXPECT_EQ(parse_as<Outcome>(to_string(static_cast<Outcome>(i))), static_cast<Outcome>(i));
  }
  EXPECT_EQ(parse_as<Outcome>("fine"), std::nullopt);
  EXPECT_EQ(to_string(Outcome::wrong_result), "wrong_result");
}

TEST(L2StateTest, SpellingsComeBack) {
  for (const L2State state : {L2State::cold, L2State::warm, L2State::mixed}) {
    EXPECT_EQ(parse_l2_state(to_string(state)), state);
  }
  EXPECT_EQ(to_string(L2State::mixed), "mixed");
  EXPECT_EQ(parse_l2_state("hot"), std::nullopt);
}

TEST(MeasurePolicyTest, TextNamesAllThree) {
  EXPECT_EQ(MeasurePolicy{}.text(), "l2=cold launch=graph power=sustained");
  EXPECT_TRUE(parse_policy("l2=mixed launch=graph power=sustained"));
  EXPECT_FALSE(parse_policy("l2=cold launch=stream power=sustained"));
  EXPECT_FALSE(parse_policy("l2=cold launch=graph power=burst"));
}

}  // namespace
}  // namespace kernwright
