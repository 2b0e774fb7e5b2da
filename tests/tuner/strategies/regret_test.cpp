#include "tuner/strategies/regret.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "bench/simulation/random_stream.h"

namespace kernwright {
namespace {

/// A space whose times are `spread` around what is predicted, in logarithms, and 10 % above it.
class RegretTest : public ::testing::Test {
 protected:
  void make_space(std::size_t size, double spread, std::uint64_t seed) {
    RandomStream random(seed);
    predicted_.clear();
    times_.clear();
    results_.clear();
    for (std::size_t i = 0; i < size; ++i) {
      predicted_.push_back(100 * (1 + 0.001 * static_cast<double>(i)));  // the best first
      times_.push_back(1.1 * predicted_[i] * std::exp(spread * random.normal()));
    }
  }
  /// The first of the predictions are measured.
  void measure(std::size_t count) {
    for (std::size_t i = results_.size(); i < count; ++i) {
      results_.push_back({i, times_[i]});
      best_us_ = std::min(best_us_, times_[i]);
    }
  }
  double estimate(double roofline_us = 0) {
    return regret_estimate({.best_us = best_us_,
                            .roofline_us = roofline_us,
                            .predicted_us = predicted_,
                            .results = results_});
  }
  double truth() const { return best_us_ / *std::min_element(times_.begin(), times_.end()) - 1; }

  std::vector<double> predicted_;
  std::vector<double> times_;
  std::vector<SearchOutlook::Result> results_;
  double best_us_ = 1e9;
};

TEST_F(RegretTest, OneOfManySaysThatTheOthersMayBeMuchFaster) {
  make_space(2341, 0.1, 1);
  measure(1);
  EXPECT_GT(estimate(), 0.1);
}

TEST_F(RegretTest, FallsAsMoreOfTheFirstChoicesAreMeasured) {
  make_space(2341, 0.1, 1);
  double before = 1;
  for (const std::size_t count : {1U, 256U, 1024U, 2000U}) {
    measure(count);
    EXPECT_LE(estimate(), before) << count;
    before = estimate();
  }
  EXPECT_LT(before, 0.01);
}

TEST_F(RegretTest, CoversTheTruthNineTimesOfTenWhereErrorsAreIndependent) {
  int covered = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    make_space(1000, 0.12, seed);
    best_us_ = 1e9;
    measure(16);
    covered += estimate() >= truth() ? 1 : 0;
  }
  EXPECT_GT(covered, 170);
}

TEST_F(RegretTest, NothingIsFasterThanTheRoofline) {
  make_space(2341, 0.1, 1);
  measure(1);
  EXPECT_NEAR(estimate(best_us_ / 1.03), 0.03, 1e-9);
}

TEST_F(RegretTest, WhereNothingIsLeftThereIsNothingToGain) {
  make_space(20, 0.1, 1);
  measure(20);
  EXPECT_EQ(estimate(), 0);
}

TEST_F(RegretTest, FailuresAreLookedAtButSayNothingOfTimes) {
  make_space(3, 0, 1);
  measure(1);
  results_.push_back({1, std::nullopt});
  results_.push_back({2, std::nullopt});
  EXPECT_EQ(estimate(), 0);
}

TEST_F(RegretTest, WithoutACostModelTheSpreadOfTheTimesCounts) {
  make_space(1000, 0.1, 1);
  const double heard = 0.1;
  predicted_.assign(1000, 0);
  measure(16);
  EXPECT_GT(estimate(), heard / 2);
}

}  // namespace
}  // namespace kernwright
