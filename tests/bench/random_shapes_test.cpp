#include "bench/common/random_shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kernwright {
namespace {

using ::testing::HasSubstr;

TEST(RandomShapesTest, SizesAreWithinTheRanges) {
  int odd = 0;
  for (const MatmulSize& size : random_shapes(400, 7, 8)) {
    EXPECT_GE(size.m, 1);
    EXPECT_LE(size.m, 8193);
    EXPECT_GE(size.n, 256);
    EXPECT_LE(size.n, 65'537);
    EXPECT_GE(size.k, 256);
    EXPECT_LE(size.k, 32'769);
    const double flops = 2.0 * static_cast<double>(size.m) * static_cast<double>(size.n) *
                         static_cast<double>(size.k);
    EXPECT_LE(flops, 2.1e12) << "sizes are rounded after the draw";
    if (size.n % 2 == 1) {
      ++odd;
      EXPECT_EQ(size.m % 2, 1);
      EXPECT_EQ(size.k % 2, 1);
    } else {
      EXPECT_EQ(size.n % 8, 0);
      EXPECT_EQ(size.k % 8, 0);
    }
  }
  EXPECT_EQ(odd, 40);
}

TEST(RandomShapesTest, ManySizesAreSmallAndManyAreLarge) {
  int small = 0;
  const auto shapes = random_shapes(1000, 3, 8);
  for (const MatmulSize& size : shapes) small += size.m < 90 ? 1 : 0;  // the middle is 2^6.5
  EXPECT_GT(small, 500);
  EXPECT_LT(small, 750) << "large products are fewer, since some are beyond the operations allowed";
}

TEST(RandomShapesTest, ASeedGivesTheSameSizesAndMoreBeginWithThem) {
  const auto few = random_shapes(20, 5, 8), many = random_shapes(60, 5, 8);
  for (std::size_t i = 0; i < few.size(); ++i) {
    EXPECT_EQ(few[i].m, many[i].m);
    EXPECT_EQ(few[i].n, many[i].n);
    EXPECT_EQ(few[i].k, many[i].k);
  }
  const auto others = random_shapes(20, 6, 8);
  EXPECT_NE(few.front().n * few.front().k, others.front().n * others.front().k);
}

TEST(RandomShapesTest, CoarseMultiplesHaveNoOddSizes) {
  for (const MatmulSize& size : random_shapes(100, 1, 16)) {
    EXPECT_EQ(size.n % 16, 0);
    EXPECT_EQ(size.k % 16, 0);
  }
}

TEST(RatioSpreadTest, PercentilesAreThoseOfTheSortedRatios) {
  std::vector<double> ratios;
  for (int i = 100; i > 0; --i) ratios.push_back(0.9 + i * 0.002);
  const RatioSpread spread = spread_of(ratios);
  EXPECT_EQ(spread.count, 100U);
  EXPECT_DOUBLE_EQ(spread.lowest, 0.902);
  EXPECT_DOUBLE_EQ(spread.p1, 0.902);
  EXPECT_DOUBLE_EQ(spread.p5, 0.91);
  EXPECT_DOUBLE_EQ(spread.median, 1.0);
  EXPECT_NEAR(spread.mean, 1.001, 1e-12);
  EXPECT_LT(spread.geometric_mean, spread.mean);
  EXPECT_DOUBLE_EQ(spread.share_below, 0.34);
  EXPECT_THAT(spread.text(), HasSubstr("100 shapes: lowest 0.902, p1 0.902, p5 0.910"));
}

TEST(RatioSpreadTest, NoRatiosAreNoSpread) {
  EXPECT_EQ(spread_of({}).count, 0U);
  EXPECT_EQ(spread_of({1.5}).p5, 1.5);
}

}  // namespace
}  // namespace kernwright
