#include "model/candidate/dispatch_table.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <set>
#include <vector>

#include "tests/results.h"

namespace kernwright {
namespace {

using TableSizes = std::vector<std::vector<std::int64_t>>;

TEST(DispatchTableTest, OneChoiceIsTakenEverywhere) {
  const DispatchTable table = DispatchTable::fit({{1}, {900}}, {{1.0, 1.0}});
  for (const std::int64_t size : {1, 5, 900, 1'000'000}) {
    EXPECT_EQ(table.order(std::vector{size})[0], 0);
  }
}

TEST(DispatchTableTest, TheBestOfEachIntervalComesFirst) {
  TableSizes sizes;
  std::vector<std::vector<double>> losses(3);
  for (std::int64_t m = 1; m <= 1000; m += 3) {
    sizes.push_back({m});
    losses[0].push_back(m <= 64 ? 1.0 : 1.3);
    losses[1].push_back(m > 64 && m <= 400 ? 1.0 : 2.0);
    losses[2].push_back(m > 400 ? 1.0 : 1.1);
  }
  const DispatchTable table = DispatchTable::fit(sizes, losses);
  const auto first = [&](std::int64_t m) { return table.order(std::vector{m})[0]; };
  EXPECT_EQ(first(1), 0);
  EXPECT_EQ(first(64), 0);
  EXPECT_EQ(first(70), 1);
  EXPECT_EQ(first(398), 1);
  EXPECT_EQ(first(405), 2);
  EXPECT_EQ(table.order(std::vector<std::int64_t>{30})[1], 2) << "the next best follows";
}

TEST(DispatchTableTest, SeveralDimsDecideTogether) {
  TableSizes sizes;
  std::vector<std::vector<double>> losses(2);
  for (std::int64_t a = 1; a <= 30; ++a) {
    for (std::int64_t b = 1; b <= 30; ++b) {
      sizes.push_back({a, b});
      const bool first = a > 10 && b <= 20;
      losses[0].push_back(first ? 1.0 : 1.5);
      losses[1].push_back(first ? 1.5 : 1.0);
    }
  }
  const DispatchTable table = DispatchTable::fit(sizes, losses);
  for (std::int64_t a = 1; a <= 30; ++a) {
    for (std::int64_t b = 1; b <= 30; ++b) {
      EXPECT_EQ(table.order(std::vector{a, b})[0], a > 10 && b <= 20 ? 0 : 1) << a << ' ' << b;
    }
  }
}

TEST(DispatchTableTest, EveryOrderHasEachChoiceOnce) {
  TableSizes sizes;
  std::vector<std::vector<double>> losses(8);
  for (std::int64_t m = 1; m <= 64; ++m) {
    sizes.push_back({m});
    for (std::size_t c = 0; c < losses.size(); ++c) {
      losses[c].push_back(
          1 + std::abs(std::sin(static_cast<double>(m) * 0.1 * static_cast<double>(1 + c))));
    }
  }
  const DispatchTable table = DispatchTable::fit(sizes, losses);
  std::set<int> firsts;
  for (std::int64_t m = 1; m <= 70; ++m) {
    const DispatchTable::Order& order = table.order(std::vector{m});
    EXPECT_EQ(std::set<int>(order.begin(), order.end()).size(), DispatchTable::kMostChoices);
    firsts.insert(order[0]);
  }
  EXPECT_GT(firsts.size(), 3U);
}

/// A table over two dims and three choices with several leaves.
DispatchTable sample_table() {
  TableSizes sizes;
  std::vector<std::vector<double>> losses(3);
  for (std::int64_t m = 1; m <= 40; ++m) {
    for (std::int64_t n = 1; n <= 40; ++n) {
      sizes.push_back({m, n});
      losses[0].push_back(m <= 9 ? 1.0 : 1.5);
      losses[1].push_back(m > 9 && n <= 30 ? 1.0 : 1.7);
      losses[2].push_back(m > 9 && n > 30 ? 1.0 : 1.6);
    }
  }
  return DispatchTable::fit(sizes, losses);
}

TEST(DispatchTableTest, ATableThatWasWrittenDownChoosesAsBefore) {
  const DispatchTable table = sample_table();
  const DispatchTable::Form form = table.form(3);
  const DispatchTable back = must(DispatchTable::from(form, 2, 3));
  for (std::int64_t m = 1; m <= 40; ++m) {
    for (std::int64_t n = 1; n <= 40; ++n) {
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(back.order(std::vector{m, n})[i], table.order(std::vector{m, n})[i]);
      }
    }
  }
  EXPECT_EQ(back.form(3), form);
}

TEST(DispatchTableTest, AFormThatLeadsNowhereIsCorrupt) {
  const DispatchTable::Form good = sample_table().form(3);
  ASSERT_GE(good.dims[0], 0);
  std::vector<DispatchTable::Form> bad(8, good);
  bad[0].dims[0] = 2;
  bad[1].next[0] = 0;  // a circle
  bad[2].next[0] = 1;  // both ways are one
  bad[3].next[0] = static_cast<int>(good.dims.size());
  bad[4].next.back() = static_cast<int>(good.orders.size());
  bad[5].orders[1] = bad[5].orders[0];
  bad[6].orders[0] = 3;
  bad[7].at_most.pop_back();
  for (const DispatchTable::Form& form : bad) {
    EXPECT_EQ(DispatchTable::from(form, 2, 3).error().code, ErrorCode::corrupt);
  }
  EXPECT_EQ(DispatchTable::from({}, 2, 3).error().code, ErrorCode::corrupt);
  EXPECT_EQ(DispatchTable::from(good, 2, 13).error().code, ErrorCode::corrupt);
}

}  // namespace
}  // namespace kernwright
