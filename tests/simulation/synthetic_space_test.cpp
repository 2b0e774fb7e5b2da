#include "bench/simulation/synthetic_space.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <vector>

namespace kernwright {
namespace {

std::vector<double> sorted_times(const RecordedSpace& space) {
  std::vector<double> times;
  for (const RecordedConfiguration& one : space.configurations) times.push_back(one.truth_us);
  std::sort(times.begin(), times.end());
  return times;
}

/// Local optima: no configuration that differs in one parameter by one step is faster.
int local_optima(const RecordedSpace& space) {
  int optima = 0;
  const auto& all = space.configurations;
  for (const RecordedConfiguration& one : all) {
    const bool beaten = std::any_of(all.begin(), all.end(), [&](const auto& other) {
      std::int64_t steps = 0;
      for (std::size_t i = 0; i < one.configuration.values().size(); ++i) {
        steps +=
            std::abs(one.configuration.values()[i].second - other.configuration.values()[i].second);
      }
      return steps == 1 && other.truth_us < one.truth_us;
    });
    if (!beaten) ++optima;
  }
  return optima;
}

TEST(SyntheticSpaceTest, TheBestTakesWhatWasAskedFor) {
  for (const Landscape landscape : kLandscapes) {
    const RecordedSpace space = synthetic_space(landscape, 40, 3);
    EXPECT_EQ(space.configurations.size(), 7776U);
    EXPECT_DOUBLE_EQ(space.best_us(), 40) << to_string(landscape);
    EXPECT_DOUBLE_EQ(sorted_times(space).front(), 40) << to_string(landscape);
  }
}

TEST(SyntheticSpaceTest, ABowlHasOneOptimum) {
  EXPECT_EQ(local_optima(synthetic_space(Landscape::bowl, 40, 3)), 1);
}

TEST(SyntheticSpaceTest, TheDeceptiveOneLeadsTenPercentOff) {
  const RecordedSpace space = synthetic_space(Landscape::deceptive, 40, 3);
  EXPECT_GE(local_optima(space), 2);
  const std::vector<double> times = sorted_times(space);
  const auto near = std::upper_bound(times.begin(), times.end(), 40 * 1.099);
  EXPECT_LT(near - times.begin(), 20) << "the way to the best is narrow";
}

TEST(SyntheticSpaceTest, TiesAreMany) {
  const std::vector<double> times = sorted_times(synthetic_space(Landscape::ties, 40, 3));
  EXPECT_DOUBLE_EQ(times[20], 40);
}

TEST(SyntheticSpaceTest, SeedsMoveTheBest) {
  const auto best = [](std::uint64_t seed) {
    const RecordedSpace space = synthetic_space(Landscape::bowl, 40, seed);
    const auto found =
        std::min_element(space.configurations.begin(), space.configurations.end(),
                         [](const auto& a, const auto& b) { return a.truth_us < b.truth_us; });
    return found->configuration.text();
  };
  EXPECT_EQ(best(1), best(1));
  EXPECT_NE(best(1), best(2));
}

TEST(GapSpaceTest, HasTheGaps) {
  const RecordedSpace space = gap_space("gaps", 200, std::vector<double>{0, 0.01, 0.5});
  ASSERT_EQ(space.configurations.size(), 3U);
  EXPECT_DOUBLE_EQ(space.configurations[1].truth_us, 202);
  EXPECT_EQ(space.default_index, 2U);
}

TEST(SubSpaceTest, KeepsTheBestAndDrawsTheRest) {
  RecordedSpace space = synthetic_space(Landscape::bowl, 40, 3);
  space.configurations[0].outcome = Outcome::wrong_result;
  const RecordedSpace part = sub_space(space, 64, 192, 9);
  ASSERT_EQ(part.configurations.size(), 256U);
  const std::vector<double> all = sorted_times(space);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(part.configurations[i].truth_us, all[i]);
  for (const RecordedConfiguration& one : part.configurations) {
    EXPECT_EQ(one.outcome, Outcome::ok);
  }
  EXPECT_EQ(sub_space(part, 300, 10, 1).configurations.size(), 256U);
}

}  // namespace
}  // namespace kernwright
