#include "tuner/strategies/search_strategy.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>

#include "tests/results.h"

namespace kernwright {
namespace {

/// 60 candidates in groups of three, two templates; the model is right about template 0 and expects
/// everything of template 1 to be slow.
struct Space {
  std::vector<Configuration> configurations;
  SearchSpace space;

  Space() {
    for (int i = 0; i < 60; ++i) {
      configurations.push_back(Configuration({{"A", i}}));
      space.predicted_us.push_back(10 + (i * 37) % 60 + (i >= 40 ? 1000 : 0));
      space.template_of.push_back(i >= 40 ? 1 : 0);
      space.group_of.push_back(i / 3);
    }
    for (const Configuration& c : configurations) space.configurations.push_back(&c);
    space.default_index = 7;
  }
};

Trial timed(double us) {
  Trial trial;
  trial.outcome = Outcome::ok;
  trial.measurement.samples_us = {us};
  return trial;
}

class SearchStrategyContractTest : public ::testing::TestWithParam<std::string_view> {
 protected:
  Space space_;
  std::unique_ptr<SearchStrategy> strategy_ = make_strategy(GetParam(), space_.space, 1).value();
};

TEST_P(SearchStrategyContractTest, ProposesEveryCandidateButTheDefaultOnce) {
  std::set<std::size_t> seen;
  for (int step = 0; step < 1000; ++step) {
    const auto proposal = strategy_->propose(7);
    EXPECT_LE(proposal.size(), 7U);
    if (proposal.empty()) break;
    for (const std::size_t i : proposal) {
      ASSERT_LT(i, 60U);
      EXPECT_TRUE(seen.insert(i).second) << i;
      strategy_->report(i, i % 5 == 0 ? Trial{} : timed(static_cast<double>(10 + i)));
    }
  }
  EXPECT_EQ(seen.size(), 59U);
  EXPECT_FALSE(seen.contains(7));
  EXPECT_TRUE(strategy_->propose(1).empty());
}

TEST_P(SearchStrategyContractTest, ProposesAheadOfReports) {
  std::size_t count = 0;
  while (!strategy_->propose(1).empty()) ++count;
  EXPECT_EQ(count, 59U);
}

TEST_P(SearchStrategyContractTest, IsDeterministic) {
  const auto other = make_strategy(GetParam(), space_.space, 1).value();
  for (int step = 0; step < 10; ++step) EXPECT_EQ(strategy_->propose(5), other->propose(5));
}

INSTANTIATE_TEST_SUITE_P(All, SearchStrategyContractTest, ::testing::ValuesIn(strategy_names()));

TEST_P(SearchStrategyContractTest, CompiledProposalsShareAReportedCompileAndCountAsProposed) {
  EXPECT_EQ(strategy_->propose_compiled(), std::nullopt) << "nothing is compiled yet";
  std::set<std::size_t> seen;
  std::set<int> compiled;
  for (const std::size_t i : strategy_->propose(10)) {
    seen.insert(i);
    compiled.insert(space_.space.group_of[i]);
    strategy_->report(i, timed(10));
  }
  while (const auto more = strategy_->propose_compiled()) {
    EXPECT_TRUE(compiled.contains(space_.space.group_of[*more])) << *more;
    ASSERT_TRUE(seen.insert(*more).second) << *more;
  }
  for (auto rest = strategy_->propose(100); !rest.empty(); rest = strategy_->propose(100)) {
    for (const std::size_t i : rest) ASSERT_TRUE(seen.insert(i).second) << i;
  }
  EXPECT_EQ(seen.size(), 59U);
}

TEST(SearchStrategyTest, AnUnknownNameListsWhatThereIs) {
  const Space space;
  EXPECT_THAT(make_strategy("genetic", space.space, 1),
              Fails("no strategy \"genetic\", there are exhaustive, random, ranked, local_search, "
                    "portfolio"));
}

TEST(RankedTest, FillsTheWaitWithTheFastestCompiledGroupThatIsNotHopeless) {
  const Space space;
  const auto strategy = make_strategy("ranked", space.space, 1).value();
  const auto first = strategy->propose(3);
  ASSERT_EQ(first.size(), 3U);
  strategy->report(first[0], timed(20));
  strategy->report(first[1], timed(10));
  strategy->report(first[2], timed(11));
  const auto group = [&](std::size_t i) { return space.space.group_of[i]; };
  ASSERT_EQ((std::set{group(first[0]), group(first[1]), group(first[2])}.size()), 3U);
  const auto filler = must(strategy->propose_compiled());
  EXPECT_EQ(group(filler), group(first[1]));
  while (const auto more = strategy->propose_compiled()) EXPECT_NE(group(*more), group(first[0]));
}

TEST(RankedTest, TriesTheBestPredictedFirstAndEveryTemplateEarly) {
  const Space space;
  const auto strategy = make_strategy("ranked", space.space, 1).value();
  const auto first = strategy->propose(8);
  ASSERT_EQ(first.size(), 8U);
  const auto best =
      std::min_element(space.space.predicted_us.begin(), space.space.predicted_us.end());
  EXPECT_EQ(first.front(), static_cast<std::size_t>(best - space.space.predicted_us.begin()));
  EXPECT_EQ(std::count_if(first.begin(), first.end(), [](std::size_t i) { return i >= 40; }), 4);
}

TEST(RankedTest, PutsOffGroupsThatFailed) {
  const Space space;
  const auto strategy = make_strategy("ranked", space.space, 1).value();
  std::vector<std::size_t> order = strategy->propose(8);
  const std::size_t failed = order.front();
  strategy->report(order[1], timed(10));
  strategy->report(failed, Trial{});
  for (auto more = strategy->propose(5); !more.empty(); more = strategy->propose(5)) {
    order.insert(order.end(), more.begin(), more.end());
  }
  ASSERT_EQ(order.size(), 59U);
  const auto same_group = [&](std::size_t i) { return i != failed && i / 3 == failed / 3; };
  const auto rest = std::count_if(order.begin() + 8, order.end(), same_group);
  EXPECT_EQ(std::count_if(order.end() - rest, order.end(), same_group), rest);
}

}  // namespace
}  // namespace kernwright
