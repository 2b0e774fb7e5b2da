#include "tuner/measure/sample_length.h"

#include <gtest/gtest.h>

namespace kernwright {
namespace {

/// Microseconds of a sample.
double length_us(double unit_us, int sets) {
  const SampleLength length = sample_length(unit_us, 1500, sets, false);
  return length.units * length.replays * unit_us;
}

TEST(SampleLengthTest, SamplesTakeOneToFourMilliseconds) {
  for (const int sets : {1, 2, 3, 7, 24, 96}) {
    for (double unit_us = 1.5; unit_us < 2000 && unit_us * sets < 4000; unit_us *= 1.3) {
      EXPECT_GE(length_us(unit_us, sets), 900) << unit_us << " us, " << sets;
      EXPECT_LE(length_us(unit_us, sets), 4000) << unit_us << " us, " << sets;
    }
  }
}

TEST(SampleLengthTest, UnitsAreWholeRotations) {
  for (const int sets : {1, 2, 3, 7, 24, 96, 512}) {
    for (const double unit_us : {0.5, 2.0, 10.0}) {
      EXPECT_EQ(sample_length(unit_us, 1500, sets, false).units % sets, 0);
    }
  }
}

TEST(SampleLengthTest, VeryShortUnitsAreReplayedAFewTimes) {
  const SampleLength length = sample_length(2, 1500, 1, false);
  EXPECT_EQ(length.units, 256);
  EXPECT_EQ(length.replays, 3);
  EXPECT_EQ(sample_length(0.01, 1500, 1, false).replays, 4);
}

TEST(SampleLengthTest, ALongUnitIsASampleOfItsOwn) {
  EXPECT_EQ(sample_length(10'000, 1500, 1, false).units, 1);
  EXPECT_EQ(sample_length(10'000, 1500, 6, false).units, 1);
  EXPECT_EQ(sample_length(2'500, 1500, 6, false).units, 2) << "of a rotation of 15 ms";
}

TEST(SampleLengthTest, WhereTheSetsStayInTheL2EachIsUsedOnce) {
  const SampleLength length = sample_length(2, 1500, 512, true);
  EXPECT_EQ(length.units, 512);
  EXPECT_EQ(length.replays, 1);
}

}  // namespace
}  // namespace kernwright
