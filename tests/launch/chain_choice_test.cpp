#include "launch/chain_choice.h"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <limits>

#include "tests/results.h"

namespace kernwright {
namespace {

/// Steps of four groups, twice over. The times of a kernel of a group, without an early start and
/// with one. A kernel whose time is infinite cannot start early.
struct Times {
  double late;
  double early;
  bool reads_ahead = false;
};
constexpr double kNever = std::numeric_limits<double>::infinity();

class ChainChoiceTest : public ::testing::Test {
 protected:
  ChainChoiceTest() {
    options_.steps = 8;
    options_.has_room = [](const ChainChoice&, std::size_t, std::size_t) { return true; };
    options_.time_is_up = [this] { return comparisons_ >= most_comparisons_; };
    options_.faster = [this](const ChainChoice& a, const ChainChoice& b) -> Result<bool> {
      ++comparisons_;
      tried_.push_back(a);
      return time_of(a) < time_of(b);
    };
  }

  double time_of(const ChainChoice& choice) const {
    double time = 0;
    for (std::size_t i = 0; i < choice.size(); ++i) {
      const Times& times = times_[i % 4][choice[i].kernel];
      EXPECT_FALSE(choice[i].early && (i == 0 || times.early == kNever)) << i;
      time += choice[i].early ? times.early : times.late;
    }
    return time;
  }

  /// One kernel in each group, with these times in place of 1 if it starts early.
  void one_kernel_each(const std::array<double, 4>& early) {
    times_.clear();
    for (const double time : early) times_.push_back({{1, time}});
  }

  ChainChoice chosen() {
    options_.groups.clear();
    for (std::size_t i = 0; i < 4; ++i) {
      StepGroup& group = options_.groups.emplace_back();
      group.steps = {i, i + 4};
      for (const Times& times : times_[i]) {
        group.kernels.push_back({times.early != kNever, false, times.reads_ahead});
      }
    }
    return must(choose_steps(options_));
  }

  static std::vector<bool> early(const ChainChoice& choice) {
    std::vector<bool> early;
    for (const StepChoice& step : choice) early.push_back(step.early);
    return early;
  }
  static std::vector<std::size_t> kernels(const ChainChoice& choice) {
    std::vector<std::size_t> kernels;
    for (const StepChoice& step : choice) kernels.push_back(step.kernel);
    return kernels;
  }

  std::vector<std::vector<Times>> times_;  ///< by group and kernel
  ChainOptions options_;
  int comparisons_ = 0;
  int most_comparisons_ = 1'000;
  std::vector<ChainChoice> tried_;
};

TEST_F(ChainChoiceTest, KeepsAllEarlyStartsWhereAllGain) {
  one_kernel_each({0.8, 0.9, 0.7, 0.9});
  EXPECT_EQ(early(chosen()), (std::vector<bool>{false, true, true, true, true, true, true, true}))
      << "nothing is in front of the first step";
}

TEST_F(ChainChoiceTest, LeavesOutTheStepsOfAKernelThatLoses) {
  one_kernel_each({0.9, 0.9, 1.2, 0.9});
  EXPECT_EQ(early(chosen()),
            (std::vector<bool>{false, true, false, true, true, true, false, true}));
}

TEST_F(ChainChoiceTest, FindsOneThatGainsWhereAllTogetherLose) {
  one_kernel_each({1.5, 1.5, 0.9, 1.5});
  EXPECT_EQ(early(chosen()),
            (std::vector<bool>{false, false, true, false, false, false, true, false}));
}

TEST_F(ChainChoiceTest, ChoosesNoneWhereNoneGains) {
  one_kernel_each({1, 1, 1.1, 1});
  EXPECT_EQ(chosen(), ChainChoice(8)) << "the first kernel without an early start";
  EXPECT_EQ(comparisons_, 1 + 4) << "a second pass follows a gain alone";
}

TEST_F(ChainChoiceTest, FindsTheKernelThatIsFasterInTheChain) {
  times_ = {{{1, kNever}},
            {{1, 0.9}, {0.8, kNever}, {1.5, 1.4}},  // without an early start
            {{1, 0.9}, {1.1, 0.5}},                 // with one alone
            {{1, 0.9}, {1, 0.9}}};                  // a tie: the first stays
  const ChainChoice choice = chosen();
  EXPECT_EQ(kernels(choice), (std::vector<std::size_t>{0, 1, 1, 0, 0, 1, 1, 0}));
  EXPECT_EQ(early(choice), (std::vector<bool>{false, false, true, true, false, false, true, true}));
}

TEST_F(ChainChoiceTest, FindsKernelsThatReadAheadAndGainTogetherAlone) {
  for (int i = 0; i < 4; ++i) times_.push_back({{1, 1.2}, {1.1, 0.8, true}});
  options_.faster = [&](const ChainChoice& a, const ChainChoice& b) -> Result<bool> {
    const auto time = [&](const ChainChoice& choice) {
      double sum = 0;
      for (std::size_t i = 0; i < choice.size(); ++i) {
        const bool room = i > 0 && choice[i - 1].kernel == 1;  // behind another there is none
        const Times& times = times_[i % 4][choice[i].kernel];
        sum += choice[i].early && room ? times.early : times.late;
      }
      return sum;
    };
    return time(a) < time(b);
  };
  EXPECT_EQ(kernels(chosen()), std::vector<std::size_t>(8, 1)) << "one group alone loses";
}

TEST_F(ChainChoiceTest, TriesTheFirstGroupsFirstAndStopsInTime) {
  times_ = {{{1, kNever}, {0.9, kNever}},
            {{1, kNever}, {0.9, kNever}},
            {{1, kNever}, {0.9, kNever}},
            {{1, kNever}, {0.9, kNever}}};
  most_comparisons_ = 2;
  EXPECT_EQ(kernels(chosen()), (std::vector<std::size_t>{1, 1, 0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(comparisons_, 2);
}

TEST_F(ChainChoiceTest, TriesWhatFindsRoomBesideTheStepInFrontFirst) {
  times_ = {{{1, kNever}}, {{1, 1}, {1, 1}, {1, 1}}, {{1, kNever}}, {{1, kNever}}};
  options_.has_room = [](const ChainChoice&, std::size_t step, std::size_t kernel) {
    return step != 1 || kernel == 2;
  };
  chosen();
  // After all without early starts: kernel 2, then the others, then those that start late.
  ASSERT_GE(tried_.size(), 4U);
  EXPECT_EQ(tried_[1][1], (StepChoice{2, true}));
  EXPECT_EQ(tried_[2][1], (StepChoice{1, true}));
  EXPECT_FALSE(tried_[3][1].early);
}

TEST_F(ChainChoiceTest, WhatIsTheSameWithoutAnEarlyStartIsTriedOnce) {
  options_.steps = 2;
  StepGroup other;
  other.steps = {0};
  other.kernels = {{false, false}};
  StepGroup group;
  group.steps = {1};
  group.kernels = {{true, false}, {true, true}};
  options_.groups = {other, group};
  times_ = {{{1, kNever}}, {{1, 0.9}, {1, 0.9}}};
  ASSERT_TRUE(choose_steps(options_));
  for (const ChainChoice& tried : tried_) EXPECT_NE(tried[1], (StepChoice{1, false}));
}

TEST_F(ChainChoiceTest, PassesAnErrorOn) {
  one_kernel_each({1, 1, 1, 1});
  options_.groups = {{{0, 1, 2, 3, 4, 5, 6, 7}, {{true, false}}}};
  options_.faster = [](const ChainChoice&, const ChainChoice&) -> Result<bool> {
    return Error{ErrorCode::device, "cuGraphLaunch"};
  };
  EXPECT_THAT(choose_steps(options_), Fails("cuGraphLaunch"));
}

}  // namespace
}  // namespace kernwright
