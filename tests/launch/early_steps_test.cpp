#include "launch/early_steps.h"

#include <array>
#include <gtest/gtest.h>

namespace kernwright {
namespace {

/// Steps of four kernels, twice over; all but the first can start early.
const EarlySteps kCan{false, true, true, true, true, true, true, true};
const std::vector<std::size_t> kGroups{0, 1, 2, 3, 0, 1, 2, 3};

/// A step's time with an early start, in place of 1 without.
using Costs = std::array<double, 4>;

EarlySteps chosen(const Costs& costs, int* comparisons = nullptr) {
  const auto time_of = [&](const EarlySteps& early) {
    double time = 0;
    for (std::size_t i = 0; i < early.size(); ++i) time += early[i] ? costs[kGroups[i]] : 1;
    return time;
  };
  const Result<EarlySteps> steps = choose_early_steps(
      kCan, kGroups, [&](const EarlySteps& a, const EarlySteps& b) -> Result<bool> {
        if (comparisons) ++*comparisons;
        for (std::size_t i = 0; i < a.size(); ++i) {
          EXPECT_FALSE(a[i] && !kCan[i]);
        }
        return time_of(a) < time_of(b);
      });
  EXPECT_TRUE(steps) << steps.error().message;
  return steps ? *steps : EarlySteps{};
}

TEST(EarlyStepsTest, KeepsAllWhereAllGain) { EXPECT_EQ(chosen({0.8, 0.9, 0.7, 0.9}), kCan); }

TEST(EarlyStepsTest, LeavesOutTheStepsOfAKernelThatLoses) {
  EXPECT_EQ(chosen({0.9, 0.9, 1.2, 0.9}),
            (EarlySteps{false, true, false, true, true, true, false, true}));
}

TEST(EarlyStepsTest, FindsOneThatGainsWhereAllTogetherLose) {
  EXPECT_EQ(chosen({1.5, 1.5, 0.9, 1.5}),
            (EarlySteps{false, false, true, false, false, false, true, false}));
}

TEST(EarlyStepsTest, ChoosesNoneWhereNoneGains) {
  int comparisons = 0;
  EXPECT_EQ(chosen({1, 1, 1.1, 1}, &comparisons), EarlySteps(8, false));
  EXPECT_EQ(comparisons, 1 + 4) << "a second pass follows a gain alone";
}

TEST(EarlyStepsTest, PassesAnErrorOn) {
  const Result<EarlySteps> steps =
      choose_early_steps(kCan, kGroups, [](const EarlySteps&, const EarlySteps&) -> Result<bool> {
        return Error{ErrorCode::device, "cuGraphLaunch"};
      });
  ASSERT_FALSE(steps);
  EXPECT_EQ(steps.error().message, "cuGraphLaunch");
}

}  // namespace
}  // namespace kernwright
