#include "bench/simulation/virtual_session.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "bench/simulation/random_stream.h"
#include "bench/simulation/synthetic_space.h"
#include "cache/records/record.h"
#include "cache/records/record_view.h"
#include "tests/results.h"
#include "tuner/finals/decision.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kUsual = "samples=0.5+outliers+tick+drift=0.5";

/// 48 configurations whose best is 2 % ahead of the next.
RecordedSpace small_space() {
  std::vector<double> gaps{0};
  for (int i = 0; i < 47; ++i) gaps.push_back(0.02 + 0.01 * i);
  return gap_space("small", 80, gaps);
}

TuningRecord record_of(VirtualSession& session) { return must(session.run()).record; }

/// When the finals of a session with this noise and seed take place.
struct FinalsTime {
  double begin = 0;
  double end = 0;
};
FinalsTime finals_time(const NoiseModel& noise, std::uint64_t seed) {
  VirtualSession session(small_space(), noise, seed);
  auto found = must(session.run());
  const TimeShares& shares = found.shares;
  return {shares.wall_seconds - shares.finals_seconds, shares.wall_seconds};
}

TEST(VirtualSessionTest, TheBudgetHoldsInVirtualSeconds) {
  for (const double seconds : {5.0, 10.0, 30.0}) {
    VirtualSession session(synthetic_space(Landscape::bowl, 50, 2), kUsual);
    session.options.budget.seconds = seconds;
    const auto found = must(session.run());
    EXPECT_LE(session.seconds(), 1.05 * seconds + 0.5);
    EXPECT_GE(session.seconds(), 0.7 * seconds) << "and is used";
    EXPECT_EQ(found.record.search.stop_reason, "budget");
    const TimeShares& shares = found.shares;
    EXPECT_NEAR(shares.setup_seconds + shares.settle_seconds + shares.measure_seconds +
                    shares.filler_seconds + shares.finals_seconds,
                shares.wall_seconds, 0.05 * shares.wall_seconds);
    EXPECT_GT(shares.device.seconds(), 0.9 * shares.wall_seconds);
    EXPECT_GT(shares.device.idle_seconds(), 0) << "loading";
    EXPECT_LT(shares.device.idle_seconds(), 0.05 * shares.device.seconds());
    EXPECT_LT(shares.device.longest_idle_seconds, 0.020);
  }
}

/// A bowl whose compiles take so long that a few seconds are over after few of them.
RecordedSpace slow_to_compile() {
  RecordedSpace space = synthetic_space(Landscape::bowl, 50, 2);
  RandomStream random(3);
  for (RecordedConfiguration& one : space.configurations) {
    one.compile_seconds = 1.5;
    one.predicted_us = one.truth_us * std::exp(0.1 * random.normal());
  }
  return space;
}

TEST(VirtualSessionTest, TrialsAreDatedInTheirOrderAndBeforeTheFinals) {
  VirtualSession session(synthetic_space(Landscape::bowl, 50, 2), kUsual);
  session.options.budget.seconds = 10;
  const auto found = must(session.run());
  double last = 0;
  for (const Trial& trial : found.trials) {
    EXPECT_GE(trial.at_seconds, last);
    last = trial.at_seconds;
  }
  EXPECT_GT(last, 0);
  EXPECT_LE(last, found.shares.wall_seconds - found.shares.finals_seconds);
}

TEST(VirtualSessionTest, FewSecondsGoToTheCostModelsFirstChoicesAndClaimLittle) {
  const RecordedSpace space = slow_to_compile();
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < space.configurations.size(); ++i) {
    if (i != space.default_index) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return space.configurations[a].predicted_us < space.configurations[b].predicted_us;
  });
  VirtualSession session(space, parse_noise(kUsual).value(), 1, 2);
  session.options.strategy = "portfolio";
  session.options.budget.seconds = 6;
  const auto found = must(session.run());
  const std::vector<Trial>& trials = found.trials;
  ASSERT_GE(trials.size(), 4U);
  EXPECT_EQ(trials[0].choice.configuration,
            space.configurations[space.default_index].configuration);
  for (std::size_t i = 1; i < std::min<std::size_t>(trials.size(), 7); ++i) {
    EXPECT_EQ(trials[i].choice.configuration, space.configurations[order[i - 1]].configuration)
        << i;
  }

  const TuningRecord& record = found.record;
  EXPECT_LT(record.measured, kFewestLooks);
  EXPECT_TRUE(hardly_looked(record));
  EXPECT_EQ(record.verdict, Verdict::unresolved);
  EXPECT_EQ(record.trust, Trust::b);
  EXPECT_EQ(decide(*parse_record(to_json(record))).verdict, Verdict::unresolved);
  EXPECT_GT(record.search.regret_estimate, 0.02);
}

TEST(VirtualSessionTest, TheSearchDoesNotEndBeforeThePredictedChoiceWasMeasured) {
  RecordedSpace space = slow_to_compile();
  const auto predicted = std::min_element(
      space.configurations.begin(), space.configurations.end(),
      [](const auto& a, const auto& b) { return a.predicted_us < b.predicted_us; });
  for (RecordedConfiguration& one : space.configurations) one.compile_seconds = 0.1;
  predicted->compile_seconds = 5;
  const Configuration expected = predicted->configuration;
  VirtualSession session(std::move(space), parse_noise(kUsual).value());
  session.options.strategy = "portfolio";
  session.options.budget.seconds = 2;
  const auto found = must(session.run());
  EXPECT_TRUE(std::ranges::any_of(found.trials, [&](const Trial& trial) {
    return trial.choice.configuration == expected && trial.outcome == Outcome::ok;
  }));
}

TEST(VirtualSessionTest, FewCandidatesLeaveTimeOfTheFinalsToLookAtMore) {
  // The default alone is compiled when the usual share of the race begins; the others follow it
  // within the first half of that share.
  RecordedSpace space = slow_to_compile();
  for (RecordedConfiguration& one : space.configurations) one.compile_seconds = 4.35;
  VirtualSession session(std::move(space), parse_noise(kUsual).value(), 1, 16);
  session.options.strategy = "portfolio";
  session.options.budget.seconds = 6;
  const TuningRecord record = record_of(session);
  EXPECT_GT(record.measured, 8);
  EXPECT_LE(session.seconds(), 1.1 * 6 + 0.5);
}

TEST(VirtualSessionTest, AnExhaustedSpaceEndsTheSearch) {
  VirtualSession session(small_space(), kUsual);
  session.options.budget.seconds = 600;
  session.options.strategy = "portfolio";
  const TuningRecord record = record_of(session);
  EXPECT_LT(session.seconds(), 60);
  EXPECT_EQ(session.regret(record), 0);
}

TEST(VirtualSessionTest, EqualSeedsGiveEqualRecordsToTheLastBit) {
  const std::string_view everything =
      "samples=1+outliers+tick+drift+throttle+load+transient+power_steps+failures+restart=3";
  std::vector<std::string> texts;
  for (int i = 0; i < 2; ++i) {
    VirtualSession session(synthetic_space(Landscape::plateaus, 50, 2), everything, 5);
    session.options.strategy = "portfolio";
    session.options.budget.seconds = 10;
    texts.push_back(to_json(record_of(session)));
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(VirtualSessionTest, TwentySessionsAgreeOrTie) {
  std::map<std::size_t, int> winners;
  int trusted = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    VirtualSession session(small_space(), kUsual, seed);
    const TuningRecord record = record_of(session);
    ++winners[session.winner(record)];
    trusted += record.trust == Trust::a ? 1 : 0;
    EXPECT_EQ(record.verdict, Verdict::win) << "seed " << seed;
  }
  EXPECT_EQ(winners[0], 20);
  EXPECT_GE(trusted, 19);
}

TEST(VirtualSessionTest, TheOrderInWhichCompilesEndChangesNothing) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    RecordedSpace space = small_space();
    RandomStream random(seed);
    for (RecordedConfiguration& one : space.configurations) {
      one.compile_seconds = random.uniform({0.01, 3});
    }
    VirtualSession session(std::move(space), parse_noise(kUsual).value(), 1,
                           1 + static_cast<int>(seed) * 3);
    const TuningRecord record = record_of(session);
    EXPECT_EQ(session.winner(record), 0U);
    EXPECT_EQ(record.verdict, Verdict::win);
    EXPECT_EQ(record.measured, 48);
  }
}

TEST(VirtualSessionTest, TheRecordGivesItsVerdictAgain) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    VirtualSession session(synthetic_space(Landscape::ties, 50, 2), "samples=1+drift+throttle",
                           seed);
    session.options.budget.seconds = 10;
    const TuningRecord record = record_of(session);
    const auto read = must(parse_record(to_json(record)));
    const Decision decision = decide(read);
    EXPECT_EQ(decision.winner, 0U);
    EXPECT_EQ(decision.verdict, record.verdict);
  }
}

TEST(VirtualSessionTest, EqualCandidatesTieAndTheDefaultStays) {
  int ties = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    VirtualSession session(gap_space("equal", 80, std::vector<double>(8, 0.0)), kUsual, seed);
    const TuningRecord record = record_of(session);
    ties += record.verdict == Verdict::tie ? 1 : 0;
    EXPECT_NE(record.verdict, Verdict::win);
    EXPECT_EQ(session.winner(record), session.space().default_index);
  }
  EXPECT_GE(ties, 19);
}

TEST(VirtualSessionTest, ASlowerTwinIsFound) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    VirtualSession session(gap_space("twin", 80, std::vector<double>{0.02, 0}), kUsual, seed);
    const TuningRecord record = record_of(session);
    EXPECT_EQ(record.verdict, Verdict::win);
    EXPECT_EQ(session.regret(record), 0) << "though the faster one is the default";
  }
}

TEST(VirtualSessionTest, NothingSlowerThanTheDefaultEverWins) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    RecordedSpace space = small_space();
    space.default_index = 0;
    VirtualSession session(std::move(space), "samples=3+outliers=5+drift=2+throttle=0.5+load=0.3",
                           seed);
    EXPECT_EQ(session.winner(record_of(session)), 0U) << "seed " << seed;
  }
}

TEST(VirtualSessionTest, AThrottleInTheMiddleOfTheFinalsChangesNothing) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    NoiseModel noise = parse_noise(kUsual).value();
    const FinalsTime finals = finals_time(noise, seed);
    noise.throttle = {.slowdown = {0.08, 0.08},
                      .seconds = {0.1, 0.1},
                      .first_at_seconds = (finals.begin + 3 * finals.end) / 4};
    VirtualSession session(small_space(), noise, seed);
    const TuningRecord record = record_of(session);
    EXPECT_EQ(session.regret(record), 0);
  }
}

TEST(VirtualSessionTest, ForeignLoadInTheMiddleIsSeenAndCostsTheTrust) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    NoiseModel noise = parse_noise(kUsual).value();
    const FinalsTime finals = finals_time(noise, seed);
    noise.foreign_load = {.slowdown = {0.3, 0.3},
                          .seconds = {0.1, 0.1},
                          .first_at_seconds = (finals.begin + finals.end) / 2};
    VirtualSession session(small_space(), noise, seed);
    const TuningRecord record = record_of(session);
    EXPECT_EQ(session.regret(record), 0);
    EXPECT_NE(record.trust, Trust::a);
  }
}

TEST(VirtualSessionTest, WhoSlowsDownAloneLosesToTheSecondOrItsEquals) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    VirtualSession session(small_space(), "samples=0.5+drift=0.5+best_step", seed);
    const TuningRecord record = record_of(session);
    EXPECT_NE(session.winner(record), 0U);
    EXPECT_LE(session.regret(record), 0.03 + 1e-9);
    EXPECT_NE(record.trust, Trust::a) << "there was no time for long blocks";
  }
}

TEST(VirtualSessionTest, ANewProcessInTheFinalsBeginsThemAgain) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    NoiseModel noise = parse_noise(kUsual).value();
    const FinalsTime finals = finals_time(noise, seed);
    noise.restarts_at_seconds = {(finals.begin + 3 * finals.end) / 4};
    noise.restart_sigma = 0.001;
    VirtualSession session(small_space(), noise, seed);
    const TuningRecord record = record_of(session);
    EXPECT_EQ(session.epoch(), 1);
    EXPECT_EQ(session.regret(record), 0);
    EXPECT_EQ(record.verdict, Verdict::win);
  }
}

TEST(VirtualSessionTest, WhereEverythingFailsTheErrorSaysHow) {
  RecordedSpace space = small_space();
  for (RecordedConfiguration& one : space.configurations) one.outcome = Outcome::wrong_result;
  VirtualSession session(std::move(space), kUsual);
  EXPECT_THAT(session.run(), Fails(HasSubstr("wrong_result")));
}

TEST(VirtualSessionTest, FailuresCostTheirCandidatesAlone) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    RecordedSpace space = small_space();
    for (std::size_t i = 1; i < space.configurations.size(); i += 2) {
      space.configurations[i].outcome = i % 4 == 1 ? Outcome::illegal_address : Outcome::timed_out;
    }
    space.configurations[4].outcome = Outcome::compile_failed;
    space.default_index = 2;
    VirtualSession session(std::move(space), kUsual, seed);
    session.options.budget.seconds = 120;  // a time-out and a new process take their time
    auto found = must(session.run());
    EXPECT_EQ(session.regret(found.record), 0);
    const auto failed = std::count_if(found.trials.begin(), found.trials.end(),
                                      [](const Trial& t) { return t.outcome != Outcome::ok; });
    EXPECT_EQ(failed, 25);
  }
}

TEST(VirtualSessionTest, ASingleCandidateWins) {
  VirtualSession session(gap_space("single", 80, std::vector<double>{0}), kUsual);
  EXPECT_EQ(session.winner(record_of(session)), 0U);
}

TEST(VirtualSessionTest, ALostDeviceEndsTheSession) {
  RecordedSpace space = small_space();
  space.configurations[7].outcome = Outcome::device_lost;
  VirtualSession session(std::move(space), kUsual);
  EXPECT_THAT(session.run(), Fails(ErrorCode::device));
}

}  // namespace
}  // namespace kernwright
