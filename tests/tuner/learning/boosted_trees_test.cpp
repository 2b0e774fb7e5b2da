#include "tuner/learning/boosted_trees.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>

namespace kernwright::detail {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// A grid of 16 x 16 points, with a third column that says nothing.
std::vector<std::vector<double>> grid() {
  std::vector<std::vector<double>> rows;
  for (int i = 0; i < 256; ++i) {
    const int column = i / 16;
    rows.push_back({static_cast<double>(i % 16), static_cast<double>(column), 3});
  }
  return rows;
}

std::vector<std::size_t> every(std::size_t step, std::size_t end) {
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < end; i += step) rows.push_back(i);
  return rows;
}

TEST(FeatureTableTest, KeepsTheOrderOfValuesAndPutsMissingOnesFirst) {
  const FeatureTable table({{4, 7}, {kNan, 7}, {1, 7}, {4, 7}, {2.5, 7}});
  ASSERT_EQ(table.rows(), 5U);
  ASSERT_EQ(table.columns(), 1U) << "a column in which all agree is left out";
  EXPECT_EQ(table.levels(0), 4U);
  const std::uint8_t* column = table.column(0);
  EXPECT_EQ(std::vector<int>(column, column + 5), (std::vector<int>{3, 0, 1, 3, 2}));
}

TEST(FeatureTableTest, SumsUpMoreValuesThanItHasOrdinals) {
  std::vector<std::vector<double>> rows;
  for (int i = 0; i < 5000; ++i) rows.push_back({std::sqrt(static_cast<double>(i))});
  rows.push_back({kNan});
  const FeatureTable table(rows);
  EXPECT_LE(table.levels(0), 255U);
  EXPECT_GT(table.levels(0), 200U);
  for (std::size_t i = 1; i < 5000; ++i) {
    ASSERT_GE(table.column(0)[i], table.column(0)[i - 1]);
    ASSERT_LT(table.column(0)[i], table.levels(0));
  }
  EXPECT_EQ(table.column(0)[5000], 0);
  EXPECT_GT(table.column(0)[0], 0);
}

TEST(BoostedTreesTest, FitAFunctionWithAnInteraction) {
  const FeatureTable table(grid());
  const auto truth = [](std::size_t i) {
    return std::abs(static_cast<double>(i % 16) - 5) * 0.1 + (i / 16 > 7 && i % 16 > 7 ? 1.0 : 0.0);
  };
  const std::vector<std::size_t> rows = every(3, 256);
  std::vector<double> targets;
  for (const std::size_t i : rows) targets.push_back(truth(i));
  BoostedTrees trees;
  trees.fit(table, rows, targets, 1);
  const std::vector<std::size_t> all = every(1, 256);
  const std::vector<double> predicted = trees.predict(table, all);
  double squares = 0;
  for (const std::size_t i : all) squares += std::pow(predicted[i] - truth(i), 2);
  EXPECT_LT(std::sqrt(squares / 256), 0.1) << "of values between 0 and 2";
}

TEST(BoostedTreesTest, AreDeterministicBySeed) {
  const FeatureTable table(grid());
  const std::vector<std::size_t> rows = every(5, 256);
  std::vector<double> targets;
  for (const std::size_t i : rows) targets.push_back(static_cast<double>((i * 37) % 101));
  BoostedTrees first;
  BoostedTrees second;
  BoostedTrees other;
  first.fit(table, rows, targets, 7);
  second.fit(table, rows, targets, 7);
  other.fit(table, rows, targets, 8);
  second.fit(table, rows, targets, 7);
  EXPECT_EQ(first.predict(table, rows), second.predict(table, rows));
  EXPECT_NE(first.predict(table, rows), other.predict(table, rows));
}

TEST(BoostedTreesTest, PredictConstantTargetsExactly) {
  const FeatureTable table(grid());
  const std::vector<std::size_t> rows = every(3, 256);
  BoostedTrees trees;
  trees.fit(table, rows, std::vector<double>(rows.size(), 2.5), 1);
  for (const double predicted : trees.predict(table, every(1, 256))) EXPECT_EQ(predicted, 2.5);
}

TEST(BoostedTreesTest, GiveRowsWithEqualFeaturesEqualPredictions) {
  const FeatureTable table({{1, 5}, {1, 5}, {2, 5}, {1, 6}, {kNan, 5}, {kNan, 5}});
  BoostedTrees trees;
  const std::vector<std::size_t> rows = {0, 1, 2, 3, 4};
  trees.fit(table, rows, std::vector<double>{1, 3, 9, 4, 7}, 1);
  const std::vector<double> predicted = trees.predict(table, every(1, 6));
  EXPECT_EQ(predicted[0], predicted[1]);
  EXPECT_EQ(predicted[4], predicted[5]);
  for (const double one : predicted) EXPECT_TRUE(std::isfinite(one));
}

TEST(BoostedTreesTest, FitASingleRowAndATableWithoutColumns) {
  const FeatureTable table({{1}, {1}});
  ASSERT_EQ(table.columns(), 0U);
  BoostedTrees trees;
  trees.fit(table, std::vector<std::size_t>{1}, std::vector<double>{4}, 1);
  EXPECT_EQ(trees.predict(table, std::vector<std::size_t>{0, 1}), (std::vector<double>{4, 4}));
}

}  // namespace
}  // namespace kernwright::detail
