#include "model/expression/recording.h"

#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "tests/results.h"

namespace kernwright {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST(RecordingTest, AComputationIsRepeatedUntilAComparisonEndsOtherwise) {
  Recording recording;
  const Number a = recording.input(12);
  const Number b = recording.input(4);
  ASSERT_TRUE(remainder(a, b) == 0);
  const Number sum = *add(*divide(a, b), times(a, 5));
  ASSERT_TRUE(sum > 60);
  const std::size_t place = recording.place(sum);
  EXPECT_EQ(sum.value(), 63);
  Recording::Row row;
  ASSERT_TRUE(recording.repeat(std::vector<std::int64_t>{20, 10}, row));
  EXPECT_EQ(row[place], 102);
  EXPECT_FALSE(recording.repeat(std::vector<std::int64_t>{21, 10}, row)) << "a remainder";
  EXPECT_FALSE(recording.repeat(std::vector<std::int64_t>{10, 10}, row)) << "51 is not above 60";
  EXPECT_FALSE(recording.repeat(std::vector<std::int64_t>{20, 0}, row)) << "no quotient";
  EXPECT_FALSE(recording.repeat(std::vector<std::int64_t>{kMost, 1}, row)) << "an overflow";
  EXPECT_FALSE(recording.repeat(std::vector<std::int64_t>{20}, row));
  EXPECT_FALSE(recording.repeat({}, row));
}

TEST(RecordingTest, ExpressionsHaveAValueOrNoneAsBefore) {
  Recording recording;
  const Number a = recording.input(8);
  const Expression choice = must(Expression::parse("a > 4 ? 2 * a : b"));
  const auto doubled = recording.evaluate(choice, {a, std::nullopt}, 16);
  ASSERT_TRUE(doubled);
  const Expression other = must(Expression::parse("a < 4 ? a : b"));
  EXPECT_FALSE(recording.evaluate(other, {a, std::nullopt}, std::nullopt));
  const std::size_t place = recording.place(*doubled);
  Recording::Row row;
  ASSERT_TRUE(recording.repeat(std::vector<std::int64_t>{9}, row));
  EXPECT_EQ(row[place], 18);
  EXPECT_FALSE(recording.repeat(std::vector<std::int64_t>{4}, row)) << "the first has no value";
  EXPECT_FALSE(recording.repeat(std::vector<std::int64_t>{3}, row)) << "the other has one";
}

TEST(RecordingTest, ConstantsAreNotRecorded) {
  const Number constant = times(Number(3), 5);
  EXPECT_EQ(constant.value(), 15);
  EXPECT_EQ(times(Number(kMost), 2).value(), kMost);
  EXPECT_FALSE(add(Number(kMost), 1));
  EXPECT_FALSE(divide(Number(1), 0));
}

TEST(RecordingTest, WhatIsTooMuchIsGivenUp) {
  Recording recording;
  Number number = recording.input(1);
  for (std::size_t i = 0; i < Recording::kMostValues; ++i) number = *add(number, 1);
  EXPECT_FALSE(recording.is_whole());
  Recording::Row row;
  EXPECT_FALSE(recording.repeat(std::vector<std::int64_t>{1}, row));
  Recording overflowing;
  static_cast<void>(times(overflowing.input(kMost), 2));
  EXPECT_FALSE(overflowing.is_whole());
}

}  // namespace
}  // namespace kernwright
