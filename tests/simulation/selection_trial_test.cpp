#include "bench/simulation/selection_trial.h"

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <vector>

#include "bench/simulation/synthetic_space.h"

namespace kernwright {
namespace {

// Few trials, so that these only find what is badly broken: bench/selection_error has the figures.
constexpr std::uint64_t kTrials = 200;
constexpr std::string_view kDrift = "samples=0.5+outliers+tick+drift=1+throttle=0.1";

std::vector<SelectionTrial> trials(const RecordedSpace& space, std::string_view noise,
                                   bool power_limited = false) {
  const BareCandidates candidates(space);
  std::vector<SelectionTrial> results;
  for (std::uint64_t seed = 1; seed <= kTrials; ++seed) {
    const SelectionOptions options{
        .simulation = {.noise = parse_noise(noise).value(), .seed = seed},
        .power_limited = power_limited};
    auto trial = run_selection_trial(space, candidates, options);
    EXPECT_TRUE(trial) << trial.error().message;
    if (trial) results.push_back(*trial);
  }
  return results;
}

auto count(const std::vector<SelectionTrial>& results,
           const std::function<bool(const SelectionTrial&)>& holds) {
  return std::count_if(results.begin(), results.end(), holds);
}

bool wrong_by_2_percent(const SelectionTrial& trial) { return trial.regret > 0.02; }

TEST(SelectionTrialTest, WithoutNoiseTheBestWinsAtOnce) {
  const RecordedSpace space = gap_space("gaps", 50, std::vector<double>{0.03, 0, 0.2});
  const auto trial = run_selection_trial(space, BareCandidates(space), {});
  ASSERT_TRUE(trial);
  EXPECT_EQ(trial->winner, 1U);
  EXPECT_EQ(trial->regret, 0);
  EXPECT_EQ(trial->verdict, Verdict::win);
  EXPECT_LE(trial->rounds, 16);
}

TEST(SelectionTrialTest, EqualCandidatesHaveNoWinner) {
  const auto results = trials(gap_space("equal", 50, std::vector<double>(8, 0.0)), kDrift);
  EXPECT_LE(count(results, [](const auto& t) { return t.verdict == Verdict::win; }), 2);
  EXPECT_GE(count(results, [](const auto& t) { return t.verdict == Verdict::tie; }), 196);
}

TEST(SelectionTrialTest, ATwinTwoPercentSlowerLoses) {
  const auto results = trials(gap_space("twin", 50, std::vector<double>{0, 0.02, 0.2}), kDrift);
  EXPECT_GE(
      count(results, [](const auto& t) { return t.verdict == Verdict::win && t.winner == 0; }),
      198);
}

TEST(SelectionTrialTest, NearTiesCostLittle) {
  const std::vector<double> gaps{0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06};
  const auto results = trials(gap_space("gaps", 50, gaps), kDrift);
  EXPECT_LE(
      count(results, [](const auto& t) { return t.trust == Trust::a && wrong_by_2_percent(t); }),
      1);
  EXPECT_LE(count(results, wrong_by_2_percent), 3);
}

TEST(SelectionTrialTest, ALadderOf256FindsTheBestWhereAPlainMinimumDoesNot) {
  const RecordedSpace space = sub_space(synthetic_space(Landscape::plateaus, 50, 1), 64, 192, 1);
  const auto results = trials(space, "samples=2+outliers+tick+drift=1+throttle=0.1");
  EXPECT_LE(count(results, wrong_by_2_percent), 1);
  EXPECT_GE(count(results, [](const auto& t) { return t.regret_of_min > 0.02; }), 10);
}

TEST(SelectionTrialTest, WhoSlowsDownAloneLosesWhereThatIsAskedFor) {
  const std::vector<double> gaps{0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06};
  const RecordedSpace space = gap_space("gaps", 50, gaps);
  constexpr std::string_view kStep = "samples=0.5+outliers+tick+drift=0.5+best_step";
  const auto alone = trials(space, kStep, true);
  EXPECT_LE(count(alone, wrong_by_2_percent), 2);
  EXPECT_EQ(count(alone, [](const auto& t) { return t.trust == Trust::a; }), 0);
  EXPECT_LE(count(trials(space, kStep), wrong_by_2_percent), 2) << "at a clock that all share";
}

TEST(SelectionTrialTest, CandidatesThatFailLateAreNotMissed) {
  const std::vector<double> gaps{0, 0.03, 0.04, 0.05, 0.06, 0.08};
  const auto results =
      trials(gap_space("gaps", 50, gaps), "samples=0.5+outliers+drift=0.5+failures=30");
  EXPECT_LE(count(results, wrong_by_2_percent), 2);
}

}  // namespace
}  // namespace kernwright
