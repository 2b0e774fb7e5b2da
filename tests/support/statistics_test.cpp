#include "support/statistics.h"

#include <gtest/gtest.h>
#include <limits>

namespace kernwright {
namespace {

TEST(StatisticsTest, RoundsToSignificantDigits) {
  EXPECT_EQ(rounded(123456, 5), 123460);
  EXPECT_EQ(rounded(-0.000123456, 3), -0.000123);
  EXPECT_EQ(rounded(2.0 / 3, 5), 0.66667);
  EXPECT_EQ(rounded(0, 5), 0);
}

TEST(StatisticsTest, WhatCannotBeRoundedIsNothing) {
  EXPECT_EQ(rounded(5e-324, 5), 0);
  EXPECT_EQ(rounded(std::numeric_limits<double>::infinity(), 5), 0);
  EXPECT_EQ(rounded(std::numeric_limits<double>::quiet_NaN(), 5), 0);
}

}  // namespace
}  // namespace kernwright
