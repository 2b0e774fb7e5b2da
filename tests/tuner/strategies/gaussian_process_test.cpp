#include "tuner/strategies/gaussian_process.h"

#include <cmath>
#include <gtest/gtest.h>

namespace kernwright::detail {
namespace {

FeatureTable line() {
  std::vector<std::vector<double>> rows;
  for (int i = 0; i < 41; ++i) rows.push_back({static_cast<double>(i), static_cast<double>(i % 3)});
  return FeatureTable(rows);
}

double truth(std::size_t i) { return std::pow(static_cast<double>(i) / 20 - 1, 2); }

struct Fitted {
  FeatureTable table = line();
  GaussianProcess process{table};

  Fitted() {
    std::vector<std::size_t> rows;
    std::vector<double> targets;
    for (std::size_t i = 0; i < 41; i += 4) {
      rows.push_back(i);
      targets.push_back(truth(i));
    }
    process.fit(rows, targets, 40);
  }
};

TEST(GaussianProcessTest, RemembersWhatItSawAndInterpolates) {
  const Fitted fitted;
  for (std::size_t i = 0; i < 41; i += 4) {
    EXPECT_NEAR(fitted.process.estimate(i).mean, truth(i), 0.05) << i;
  }
  EXPECT_NEAR(fitted.process.estimate(22).mean, truth(22), 0.2);
}

TEST(GaussianProcessTest, IsSurerNearWhatItSaw) {
  const Fitted fitted;
  EXPECT_LT(fitted.process.estimate(8).deviation, fitted.process.estimate(10).deviation);
}

TEST(GaussianProcessTest, BoundsTheDeviationFromAboveWithTheSameMean) {
  const Fitted fitted;
  for (std::size_t i = 0; i < 41; ++i) {
    const auto exact = fitted.process.estimate(i);
    const auto bound = fitted.process.bound(i);
    EXPECT_DOUBLE_EQ(exact.mean, bound.mean) << i;
    EXPECT_LE(exact.deviation, bound.deviation * (1 + 1e-9)) << i;
  }
}

TEST(GaussianProcessTest, AnAddedRowIsKnownFromThenOn) {
  Fitted fitted;
  const double before = fitted.process.estimate(22).deviation;
  fitted.process.add(22, 3);
  EXPECT_NEAR(fitted.process.estimate(22).mean, 3, 0.3);
  EXPECT_LT(fitted.process.estimate(22).deviation, before);
}

TEST(GaussianProcessTest, AdaptsToTheColumnThatMatters) {
  const FeatureTable table = line();
  GaussianProcess process(table);
  std::vector<std::size_t> rows;
  std::vector<double> targets;
  for (std::size_t i = 0; i < 41; i += 2) {
    rows.push_back(i);
    targets.push_back(i % 3 == 0 ? 1 : 0);
  }
  process.fit(rows, targets, 60);
  EXPECT_GT(process.estimate(21).mean, process.estimate(23).mean + 0.5);
}

TEST(GaussianProcessTest, SurvivesConstantTargetsAndEqualRows) {
  const FeatureTable table({{1, 2}, {1, 2}, {2, 2}, {3, 1}});
  GaussianProcess process(table);
  process.fit({0, 1, 2}, std::vector<double>{5, 5, 5}, 20);
  const auto estimate = process.estimate(3);
  EXPECT_TRUE(std::isfinite(estimate.mean));
  EXPECT_TRUE(std::isfinite(estimate.deviation));
  EXPECT_NEAR(estimate.mean, 5, 1e-3);
}

}  // namespace
}  // namespace kernwright::detail
