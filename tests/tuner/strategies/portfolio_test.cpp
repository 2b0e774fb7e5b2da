#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <set>

#include "tests/tuner/strategies/small_space.h"

namespace kernwright {
namespace {

/// Five parameters, 3,840 points: a tile that must fit, a rough parameter, interactions, and a
/// fifth of the space that fails.
class PortfolioTest : public ::testing::Test {
 protected:
  double rough(std::size_t i) const {
    const auto v = [&](std::size_t p) { return static_cast<double>(grid_.value(i, p)); };
    if (v(0) * v(1) > 40) return 0;
    const double tile = std::abs(v(0) - 5) * 0.12 + std::abs(v(1) - 6) * 0.08;
    const double interaction = v(2) == 1 && v(3) < 3 ? 0.3 : 0.05 * std::abs(v(3) - 4);
    const double noise = 0.04 * static_cast<double>(hash_at(5, i) % 100) / 100;
    return 100 * (1 + tile + interaction +
                  0.07 * static_cast<double>(
                             hash_at(1, static_cast<std::uint64_t>(grid_.value(i, 4))) % 7) +
                  noise);
  }
  double best() const {
    double least = 1e9;
    for (std::size_t i = 0; i < grid_.configurations.size(); ++i) {
      if (rough(i) > 0) least = std::min(least, rough(i));
    }
    return least;
  }

  SmallSpace grid_{{8, 10, 2, 6, 4}};
};

TEST_F(PortfolioTest, FindsTheBestPercentInABandOfProposals) {
  const Times us = [this](std::size_t i) { return rough(i); };
  const double good = best() / 0.99;
  const std::size_t portfolio = median_proposals("portfolio", grid_.space, us, good, 1000);
  EXPECT_LE(portfolio, 110U);
  EXPECT_LE(median_proposals("local_search", grid_.space, us, good, 1000), 320U);
  EXPECT_GT(median_proposals("random", grid_.space, us, good, 1000), 2 * portfolio);
}

TEST_F(PortfolioTest, LeavesADeceptiveBasin) {
  // Everything leads to one corner; the best is in another that is worse all around.
  const Times us = [this](std::size_t i) {
    const auto v = [&](std::size_t p) { return static_cast<double>(grid_.value(i, p)); };
    const double uphill = 100 + 10 * (v(0) + v(1) + v(3));
    if (v(2) == 1 && v(0) >= 6 && v(1) >= 8) return 80 + 5 * (9 - v(1)) + 3 * v(3) + v(4);
    return uphill + 5 * v(2);
  };
  EXPECT_LE(median_proposals("portfolio", grid_.space, us, 81, 1000), 400U);
}

TEST_F(PortfolioTest, CrossesAPlateau) {
  const Times us = [this](std::size_t i) {
    return grid_.value(i, 0) == 5 && grid_.value(i, 1) == 5 && grid_.value(i, 2) == 1 ? 50.0 : 100;
  };
  EXPECT_LE(median_proposals("portfolio", grid_.space, us, 51, 2000), 600U);
}

TEST_F(PortfolioTest, LearnsWhatFailsAndStopsProposingIt) {
  const Times us = [this](std::size_t i) {
    return grid_.value(i, 1) >= 3 ? 0 : 100.0 + static_cast<double>(grid_.value(i, 0));
  };
  const auto strategy = make_strategy("portfolio", grid_.space, 3).value();
  int failed = 0;
  for (int batch = 0; batch < 10; ++batch) {
    failed = 0;
    for (const std::size_t i : strategy->propose(16)) {
      failed += us(i) == 0 ? 1 : 0;
      strategy->report(i, timed_trial(us(i)));
    }
  }
  EXPECT_LE(failed, 8) << "of 16 in the last batch, where 70 % of the space fail";
}

TEST_F(PortfolioTest, GoesOnWhereEverythingFails) {
  const auto strategy = make_strategy("portfolio", grid_.space, 1).value();
  std::set<std::size_t> seen;
  for (auto batch = strategy->propose(64); !batch.empty(); batch = strategy->propose(64)) {
    for (const std::size_t i : batch) {
      ASSERT_TRUE(seen.insert(i).second);
      strategy->report(i, timed_trial(0));
    }
  }
  EXPECT_EQ(seen.size(), grid_.configurations.size() - 1);
}

TEST_F(PortfolioTest, GoodWarmStartsAreWorthTheirPlace) {
  const Times us = [this](std::size_t i) { return rough(i); };
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < grid_.configurations.size(); ++i) {
    if (rough(i) > 0) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return rough(a) < rough(b); });
  SearchSpace warm = grid_.space;
  warm.warm_starts.assign(order.begin() + 4, order.begin() + 12);
  const double good = rough(order[11]);
  EXPECT_LE(median_proposals("portfolio", warm, us, good, 1000), 9U);
  EXPECT_LE(median_proposals("portfolio", warm, us, best() / 0.99, 1000), 80U);
}

TEST_F(PortfolioTest, TheFirstChoiceComesBeforeAnyWarmStart) {
  SearchSpace space = grid_.space;
  for (std::size_t i = 0; i < space.predicted_us.size(); ++i) {
    space.predicted_us[i] = 100 + static_cast<double>(i);
  }
  space.default_index = 3;
  space.predicted_us[40] = 90;
  space.predicted_us[50] = 91;  // near the fastest
  space.predicted_us[60] = 180;
  space.warm_starts = {60, 50};
  const auto strategy = make_strategy("portfolio", space, 3).value();
  const std::vector<std::size_t> proposal = strategy->propose(14);
  EXPECT_EQ(proposal[0], 40U);
  EXPECT_EQ(proposal[1], 50U);
  const auto slow = std::find(proposal.begin(), proposal.end(), 60U);
  ASSERT_NE(slow, proposal.end());
  EXPECT_GT(slow - proposal.begin(), 10) << "a warm start that is predicted to be slow waits";
}

TEST_F(PortfolioTest, MisleadingWarmStartsCostLittle) {
  const Times us = [this](std::size_t i) { return rough(i); };
  SearchSpace warm = grid_.space;
  for (std::size_t i = 0; i < 8; ++i) warm.warm_starts.push_back(8 * i);  // slow, all in one corner
  const double good = best() / 0.99;
  const std::size_t cold = median_proposals("portfolio", grid_.space, us, good, 1000);
  EXPECT_LE(median_proposals("portfolio", warm, us, good, 1000), cold + cold / 2);
}

TEST_F(PortfolioTest, AWrongCostModelLosesItsSay) {
  const Times us = [this](std::size_t i) { return rough(i); };
  SearchSpace wrong = grid_.space;
  SearchSpace right = grid_.space;
  for (std::size_t i = 0; i < wrong.predicted_us.size(); ++i) {
    wrong.predicted_us[i] = rough(i) > 0 ? 1e4 / rough(i) : 1;
    right.predicted_us[i] = rough(i) > 0 ? rough(i) : 1000;
  }
  const double good = best() / 0.99;
  EXPECT_LE(median_proposals("portfolio", wrong, us, good, 1000), 220U);
  EXPECT_LE(median_proposals("portfolio", right, us, good, 1000), 7U);
}

TEST_F(PortfolioTest, WhatIsThoughtHopelessWaits) {
  SearchSpace space = grid_.space;
  for (std::size_t i = 0; i < space.predicted_us.size(); ++i) {
    space.template_of[i] = grid_.value(i, 2) == 1 ? 1 : 0;
    space.predicted_us[i] = space.template_of[i] == 1 ? 3000 : 110;
    space.predicted_us[i] += static_cast<double>(grid_.value(i, 0));
  }
  const auto strategy = make_strategy("portfolio", space, 3).value();
  for (const std::size_t i : strategy->propose(24)) EXPECT_EQ(space.template_of[i], 0);
}

TEST_F(PortfolioTest, TheOrderOfReportsWithinABatchDoesNotMatterToTheModels) {
  const auto first = make_strategy("portfolio", grid_.space, 9).value();
  const auto second = make_strategy("portfolio", grid_.space, 9).value();
  // The first batch and the first after it: local search has nothing to go on from yet.
  const auto batch = first->propose(31);
  ASSERT_EQ(second->propose(31), batch);
  for (const std::size_t i : batch) first->report(i, timed_trial(rough(i)));
  for (auto i = batch.rbegin(); i != batch.rend(); ++i) second->report(*i, timed_trial(rough(*i)));
  auto a = first->propose(1);
  auto b = second->propose(1);
  for (const std::size_t i : first->propose(15)) a.push_back(i);
  for (const std::size_t i : second->propose(15)) b.push_back(i);
  const std::set<std::size_t> in_a(a.begin(), a.end());
  const auto shared =
      std::count_if(b.begin(), b.end(), [&](std::size_t i) { return in_a.contains(i); });
  EXPECT_GE(shared, 9) << "all but those of the local search";
}

TEST(PortfolioSpacesTest, ASingleCandidateNeedsNoProposal) {
  const SmallSpace one({1});
  for (const std::string_view name : strategy_names()) {
    const auto strategy = make_strategy(name, one.space, 1).value();
    strategy->report(0, timed_trial(5));
    EXPECT_TRUE(strategy->propose(16).empty()) << name;
    EXPECT_EQ(strategy->propose_compiled(), std::nullopt) << name;
  }
}

TEST(PortfolioSpacesTest, CandidatesWithoutParametersAreEachATemplate) {
  SmallSpace grid({12});
  const Configuration empty;
  for (std::size_t i = 0; i < 12; ++i) {
    grid.space.configurations[i] = &empty;
    grid.space.template_of[i] = static_cast<int>(i);
  }
  const Times us = [](std::size_t i) { return 20.0 - static_cast<double>(i); };
  EXPECT_LE(proposals_until("portfolio", grid.space, us, 9, 1, 100), 12U);
}

TEST(PortfolioSpacesTest, TemplatesWithOtherParametersShareASearch) {
  // Two templates: 100 points of (A, B), 60 of (A, C); the best is in the second.
  std::vector<Configuration> configurations;
  SearchSpace space;
  for (int i = 0; i < 160; ++i) {
    const bool second = i >= 100;
    const int a = second ? (i - 100) % 10 : i % 10;
    const int b = second ? (i - 100) / 10 : i / 10;
    configurations.push_back(Configuration({{"A", a}, {second ? "C" : "B", b}}));
    space.template_of.push_back(second ? 1 : 0);
    space.group_of.push_back(i);
    space.predicted_us.push_back(0);
  }
  for (const Configuration& one : configurations) space.configurations.push_back(&one);
  const Times us = [&](std::size_t i) {
    const double a = static_cast<double>(configurations[i].values()[0].second);
    const double b = static_cast<double>(configurations[i].values()[1].second);
    return (i >= 100 ? 90 : 100) + 4 * std::abs(a - 7) + 6 * std::abs(b - 3);
  };
  EXPECT_LE(median_proposals("portfolio", space, us, 90, 160), 70U);
}

TEST(PortfolioSpacesTest, LargeSpacesAreSearchedInTime) {
  const SmallSpace grid({50, 40, 10, 10});  // 200,000
  const Times us = [&](std::size_t i) {
    return 100 + 2.0 * std::abs(static_cast<double>(grid.value(i, 0)) - 33) +
           3.0 * std::abs(static_cast<double>(grid.value(i, 1)) - 11) +
           5.0 * static_cast<double>(grid.value(i, 2)) + static_cast<double>(grid.value(i, 3));
  };
  EXPECT_LE(proposals_until("portfolio", grid.space, us, 110, 1, 300), 250U);
}

}  // namespace
}  // namespace kernwright
