#include "tuner/learning/gaussian_process.h"

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
  GaussianProcess::Normal estimate(std::size_t i) const { return process.posterior(i).marginal(); }
};

TEST(GaussianProcessTest, RemembersWhatItSawAndInterpolates) {
  const Fitted fitted;
  for (std::size_t i = 0; i < 41; i += 4) {
    EXPECT_NEAR(fitted.estimate(i).mean, truth(i), 0.05) << i;
  }
  EXPECT_NEAR(fitted.estimate(22).mean, truth(22), 0.2);
}

TEST(GaussianProcessTest, IsSurerNearWhatItSaw) {
  const Fitted fitted;
  EXPECT_LT(fitted.estimate(8).deviation, fitted.estimate(10).deviation);
}

TEST(GaussianProcessTest, BoundsTheDeviationFromAboveWithTheSameMean) {
  const Fitted fitted;
  for (std::size_t i = 0; i < 41; ++i) {
    const auto exact = fitted.estimate(i);
    const auto bound = fitted.process.bound(i);
    EXPECT_DOUBLE_EQ(exact.mean, bound.mean) << i;
    EXPECT_LE(exact.deviation, bound.deviation * (1 + 1e-9)) << i;
  }
}

TEST(GaussianProcessTest, ConditioningNarrowsAsAMeasurementWould) {
  Fitted fitted;
  auto near = fitted.process.posterior(23);
  auto far = fitted.process.posterior(2);
  const auto before = near.marginal();
  const auto far_before = far.marginal();
  const auto supposed = fitted.process.posterior(22);
  near.condition_on(supposed);
  far.condition_on(supposed);
  EXPECT_DOUBLE_EQ(near.marginal().mean, before.mean);
  EXPECT_LT(near.marginal().deviation, 0.95 * before.deviation);
  EXPECT_GT(far.marginal().deviation / far_before.deviation,
            near.marginal().deviation / before.deviation);
  EXPECT_LE(far.marginal().deviation, far_before.deviation);
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
  EXPECT_GT(process.posterior(21).marginal().mean, process.posterior(23).marginal().mean + 0.5);
}

TEST(GaussianProcessTest, SurvivesConstantTargetsAndEqualRows) {
  const FeatureTable table({{1, 2}, {1, 2}, {2, 2}, {3, 1}});
  GaussianProcess process(table);
  process.fit(std::vector<std::size_t>{0, 1, 2}, std::vector<double>{5, 5, 5}, 20);
  const auto estimate = process.posterior(3).marginal();
  EXPECT_TRUE(std::isfinite(estimate.mean));
  EXPECT_TRUE(std::isfinite(estimate.deviation));
  EXPECT_NEAR(estimate.mean, 5, 1e-3);
}

}  // namespace
}  // namespace kernwright::detail
