#include "tuner/learning/feature_table.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace kernwright::detail {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

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

}  // namespace
}  // namespace kernwright::detail
