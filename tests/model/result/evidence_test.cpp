#include "model/result/evidence.h"

#include <gtest/gtest.h>

namespace kernwright {
namespace {

using enum KernelPath;

TEST(BestPathTest, IsThatOfTheShortestPeriod) {
  const LaunchTimes paths{.times = {{stream, 1, 5}, {graph, 2, 4}, {rebind, 3, 4.21}}, .best = {}};
  EXPECT_EQ(paths.by_medians(), graph);
}

TEST(BestPathTest, WithinFivePercentTheHostDecides) {
  const LaunchTimes paths{.times = {{stream, 3, 100}, {graph, 1, 104.9}, {rebind, 0.5, 105.1}},
                          .best = {}};
  EXPECT_EQ(paths.by_medians(), graph);
}

TEST(BestPathTest, WhereTheHostTellsNothingEitherItIsTheFirst) {
  const LaunchTimes paths{.times = {{stream, 3, 2.4}, {graph, 1.14, 2.4}, {rebind, 1.1, 2.4}},
                          .best = {}};
  EXPECT_EQ(paths.by_medians(), graph);
}

// Rounds that spread may not make a path the best whose median is far behind: a reader sees the
// medians alone.
TEST(BestPathTest, NoPathWinsWhoseMedianIsFarBehind) {
  const LaunchTimes paths{
      .times = {{stream, 5.081, 12.12}, {graph, 16.399, 15.842}, {rebind, 2.4058, 12.694}},
      .best = graph};
  EXPECT_EQ(paths.by_medians(), rebind);
}

TEST(BestPathTest, NothingWasMeasuredNothingIsBest) {
  EXPECT_EQ(LaunchTimes{}.by_medians(), std::nullopt);
}

}  // namespace
}  // namespace kernwright
