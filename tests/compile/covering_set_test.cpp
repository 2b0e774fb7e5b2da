#include "tests/compile/covering_set.h"

#include <array>
#include <gtest/gtest.h>
#include <set>

namespace kernwright {
namespace {

using Rows = std::vector<std::vector<std::int64_t>>;

std::set<std::array<std::int64_t, 4>> pairs_of(const Rows& rows) {
  std::set<std::array<std::int64_t, 4>> pairs;
  for (const auto& row : rows) {
    for (std::size_t a = 0; a < row.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        pairs.insert({static_cast<std::int64_t>(a), static_cast<std::int64_t>(b), row[a], row[b]});
      }
    }
  }
  return pairs;
}

Rows chosen_of(const Rows& rows) {
  Rows chosen;
  for (const std::size_t row : covering_set(rows)) chosen.push_back(rows.at(row));
  return chosen;
}

TEST(CoveringSetTest, FewRowsOfAProductHaveAllItsPairs) {
  Rows rows;
  for (std::int64_t i = 0; i < 768; ++i) {
    rows.push_back({i % 4, i / 4 % 4 * 100, -(i / 16 % 4), i / 64 % 3, i / 192 % 2, i / 384});
  }
  const Rows chosen = chosen_of(rows);
  EXPECT_EQ(pairs_of(chosen), pairs_of(rows));
  EXPECT_GE(chosen.size(), 16U);  // the pairs of two columns
  EXPECT_LE(chosen.size(), 24U);
}

TEST(CoveringSetTest, PairsThatNoRowHasAreNotAskedFor) {
  Rows rows;
  for (std::int64_t i = 0; i < 1000; ++i) {
    const std::vector<std::int64_t> row{i % 10, i / 10 % 10, i / 100};
    if (row[0] <= row[1] && (row[1] + row[2]) % 3 != 0) rows.push_back(row);
  }
  EXPECT_EQ(pairs_of(chosen_of(rows)), pairs_of(rows));
}

TEST(CoveringSetTest, OnlyPairsThatAreAskedForCount) {
  Rows rows;
  for (std::int64_t i = 0; i < 200; ++i) rows.push_back({i % 2, i / 2 % 10, i / 20});
  const auto chosen = covering_set(rows, [](std::size_t, std::size_t b) { return b == 0; });
  EXPECT_EQ(chosen.size(), 20U);  // without the 100 pairs of the last two columns
}

TEST(CoveringSetTest, TheFirstOfEqualRowsIsChosen) {
  EXPECT_EQ(covering_set({{1, 2, 3}, {1, 2, 3}, {4, 5, 6}, {1, 2, 6}}),
            (std::vector<std::size_t>{0, 2, 3}));
  EXPECT_TRUE(covering_set({}).empty());
}

}  // namespace
}  // namespace kernwright
