#include "tuner/finals/race.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <memory>
#include <utility>

#include "tests/results.h"
#include "tests/tuner/scripted_runner.h"

namespace kernwright {
namespace {

using Place = Standing::Place;

/// `count` times that rise by `step` from 10 us, the default first and slowest.
std::vector<double> ramp(int count, double step) {
  std::vector<double> us{10 * (1 + 3 * step * count)};
  for (int i = 1; i < count; ++i) us.push_back(10 * (1 + step * (i - 1)));
  return us;
}

bool is_finalist(const RaceResult& result, std::size_t survivor) {
  return std::any_of(result.finalists.begin(), result.finalists.end(),
                     [&](const auto& finalist) { return finalist.survivor == survivor; });
}

TEST(RaceTest, TheFastestWinsWithoutMoreRoundsThanItTakes) {
  ScriptedRace race({12, 10, 10.3, 11, 14});
  race.runner.noise = 0.002;
  const auto result = must(race.run());
  EXPECT_EQ(winner(result), 1U);
  EXPECT_EQ(result.decision.verdict, Verdict::win);
  EXPECT_EQ(result.rounds.sm_probe_us.size(), 16U);
  EXPECT_EQ(result.raced, 5);
  EXPECT_LT(race.runner.seconds, 0.3);
}

TEST(RaceTest, EveryFinalistHasOneSamplePerRoundUntilItIsOut) {
  ScriptedRace race({10.2, 10, 10.05, 20});
  race.runner.noise = 0.01;
  const auto result = must(race.run());
  const auto& finalists = result.finalists;
  ASSERT_EQ(finalists.size(), 4U);
  const std::size_t rounds = result.rounds.sm_probe_us.size();
  EXPECT_GT(rounds, 16U);
  EXPECT_EQ(finalists[1].samples.size(), rounds);
  EXPECT_EQ(finalists[2].samples.size(), rounds);
  EXPECT_EQ(finalists[3].samples.size(), 16U);
  EXPECT_EQ(result.decision.standings[3].place, Place::slower);
}

TEST(RaceTest, ManySurvivorsDropOutRungByRung) {
  ScriptedRace race(ramp(200, 0.002));
  race.runner.noise = 0.003;
  const auto result = must(race.run());
  EXPECT_LE(result.raced, 96);
  EXPECT_GE(result.raced, 24);
  EXPECT_EQ(result.finalists.size(), 8U);
  EXPECT_TRUE(is_finalist(result, 0)) << "the default stays whatever it costs";
  EXPECT_TRUE(is_finalist(result, 1));
  EXPECT_LE(result.finalists[result.decision.leader].survivor, 4U);
  EXPECT_LT(race.runner.samples[199], 1) << "too slow in screening to be raced";
  EXPECT_LT(race.runner.seconds, 5);
}

TEST(RaceTest, WhatIsForChainsStaysHoweverSlowItIsAlone) {
  ScriptedRace race(ramp(60, 0.002));
  race.runner.noise = 0.003;
  race.survivors[55].is_for_chains = true;
  const auto result = must(race.run());
  EXPECT_TRUE(is_finalist(result, 55));
  EXPECT_FALSE(is_finalist(result, 54));
  EXPECT_LE(result.finalists[result.decision.leader].survivor, 4U);
}

TEST(RaceTest, LittleTimeMeansFewSurvivorsAndRounds) {
  ScriptedRace race(ramp(200, 0.001));
  race.runner.noise = 0.02;
  race.options.seconds = 1;
  race.options.finals_seconds = 0.5;
  const auto result = must(race.run());
  EXPECT_LT(race.runner.seconds, 1.2);
  EXPECT_GE(result.rounds.sm_probe_us.size(), static_cast<std::size_t>(kMinRounds));
}

TEST(RaceTest, ChecksDoNotTakeTheFinalsTime) {
  ScriptedRace race({10, 10, 10, 10});
  race.runner.noise = 0.02;
  race.options.seconds = 2;
  race.runner.checked = [&](Runner::Id, Runner::CheckDepth) {
    race.runner.seconds += 1;
    return Outcome::ok;
  };
  const auto result = must(race.run());
  // A quarter of 2 s for rounds of six samples.
  EXPECT_GE(result.rounds.sm_probe_us.size(), 40U);
  EXPECT_LT(race.runner.seconds, 4.8);
}

TEST(RaceTest, EqualCandidatesTieAndTheDefaultIsKept) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    ScriptedRace race(std::vector<double>(8, 10.0), seed);
    race.runner.noise = 0.005;
    const auto result = must(race.run());
    EXPECT_EQ(result.decision.verdict, Verdict::tie);
    EXPECT_EQ(winner(result), 0U);
  }
}

TEST(RaceTest, APlantedGapOfTwoPercentIsFoundThroughNoise) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    ScriptedRace race({10.2, 10}, seed);
    race.runner.noise = 0.01;
    const auto result = must(race.run());
    EXPECT_EQ(result.decision.verdict, Verdict::win);
    EXPECT_EQ(winner(result), 1U);
  }
}

TEST(RaceTest, DriftThatAllShareDoesNotMatter) {
  ScriptedRace race({10.2, 10, 10.4});
  race.runner.noise = 0.003;
  const auto undisturbed = race.runner.time_us;
  race.runner.time_us = [&, undisturbed](Runner::Id id, double seconds) {
    return undisturbed(id, seconds) * (1 + 0.05 * std::sin(7 * seconds));
  };
  const auto result = must(race.run());
  EXPECT_EQ(winner(result), 1U);
  EXPECT_EQ(result.decision.verdict, Verdict::win);
}

TEST(RaceTest, ARoundThatIsThrottledFromOutsideIsDroppedForAll) {
  ScriptedRace race({10.1, 10, 10.1});
  race.runner.noise = 0.008;
  const auto throttled = [](double seconds) { return seconds > 0.10 && seconds < 0.13; };
  const auto undisturbed = race.runner.time_us;
  race.runner.time_us = [&, undisturbed](Runner::Id id, double seconds) {
    return undisturbed(id, seconds) * (throttled(seconds) ? 1.15 : 1);
  };
  race.runner.sm_mhz = [&](Runner::Id, double seconds) {
    return throttled(seconds) ? 1700.0 : 1980.0;
  };
  const auto result = must(race.run());
  const std::vector<int>& dropped = result.rounds.dropped;
  EXPECT_GE(dropped.size(), 2U);
  EXPECT_LE(dropped.size(), 4U);
  EXPECT_FALSE(result.decision.disturbed);
  for (const int round : dropped) {
    EXPECT_GT(result.finalists[0].samples[static_cast<std::size_t>(round)].at_seconds, 0.09);
    EXPECT_LT(result.finalists[0].samples[static_cast<std::size_t>(round)].at_seconds, 0.14);
  }
}

TEST(RaceTest, ACandidateThatLowersTheClockByItselfKeepsItsRounds) {
  ScriptedRace race({10.5, 10, 10.5});
  race.runner.noise = 0.002;
  race.runner.time_us = [&](Runner::Id id, double seconds) {
    const bool slow = id == 1 && std::fmod(seconds, 0.05) < 0.02;
    return id < 0 ? 100 : race.us[static_cast<std::size_t>(id)] * (slow ? 1.12 : 1);
  };
  race.runner.sm_mhz = [](Runner::Id id, double seconds) {
    return id == 1 && std::fmod(seconds, 0.05) < 0.02 ? 1750.0 : 1980.0;
  };
  const auto result = must(race.run());
  EXPECT_TRUE(result.rounds.dropped.empty());
  EXPECT_TRUE(result.decision.standings[1].bimodal);
  EXPECT_NE(winner(result), 1U) << "it is slower than the others in its slower mode";
}

TEST(RaceTest, DisturbedTwiceTheVerdictStaysOpen) {
  ScriptedRace race({11, 10, 10.2});
  // A third of all the time, in stretches shorter than the wait before the repetition.
  const auto loaded = [](double seconds) { return std::fmod(seconds, 0.05) < 0.0165; };
  race.runner.time_us = [&](Runner::Id id, double seconds) {
    return (id < 0 ? 100 : race.us[static_cast<std::size_t>(id)]) * (loaded(seconds) ? 1.3 : 1);
  };
  race.runner.sm_mhz = [&](Runner::Id, double seconds) {
    return loaded(seconds) ? 1500.0 : 1980.0;
  };
  race.options.seconds = 20;
  const auto result = must(race.run());
  EXPECT_TRUE(result.decision.disturbed);
  EXPECT_EQ(result.decision.verdict, Verdict::unresolved);
  EXPECT_NE(winner(result), 0U) << "both others are faster in nearly every round";
  EXPECT_EQ(result.audit.trust(), Trust::c);
}

TEST(RaceTest, ADisturbedRungIsRepeatedOnce) {
  ScriptedRace race({11, 10, 10.2});
  const auto loaded = [](double seconds) {
    return seconds < 0.5 && std::fmod(seconds, 0.05) < 0.0165;
  };
  race.runner.time_us = [&](Runner::Id id, double seconds) {
    return (id < 0 ? 100 : race.us[static_cast<std::size_t>(id)]) * (loaded(seconds) ? 1.3 : 1);
  };
  race.runner.sm_mhz = [&](Runner::Id, double seconds) {
    return loaded(seconds) ? 1500.0 : 1980.0;
  };
  const auto result = must(race.run());
  EXPECT_FALSE(result.decision.disturbed);
  EXPECT_EQ(result.decision.verdict, Verdict::win);
  EXPECT_EQ(winner(result), 1U);
  EXPECT_EQ(result.audit.trust(), Trust::a);
}

TEST(RaceTest, AFinalistThatFailsInTheFinalsCostsOnlyItself) {
  ScriptedRace race({11, 10, 10.3, 10.6});
  race.runner.noise = 0.002;
  race.runner.outcome = [](Runner::Id id, int sample) {
    return id == 1 && sample == 9 ? Outcome::illegal_address : Outcome::ok;
  };
  const auto result = must(race.run());
  EXPECT_EQ(winner(result), 2U);
  EXPECT_EQ(result.decision.verdict, Verdict::win);
  ASSERT_EQ(result.failed.size(), 1U);
  EXPECT_EQ(result.failed[0].first, 1U);
  EXPECT_EQ(result.failed[0].second.outcome, Outcome::illegal_address);
  EXPECT_FALSE(is_finalist(result, 1));
}

TEST(RaceTest, AFailureAfterOthersDroppedOutBeginsTheRoundsAnew) {
  ScriptedRace race({13, 10, 10.05, 10.06});
  race.runner.noise = 0.02;
  race.runner.outcome = [](Runner::Id id, int sample) {
    return id == 1 && sample == 40 ? Outcome::timed_out : Outcome::ok;
  };
  const auto result = must(race.run());
  EXPECT_FALSE(is_finalist(result, 1));
  EXPECT_EQ(result.finalists.size(), 3U);
  EXPECT_EQ(result.finalists[0].samples.size(), 16U);
  EXPECT_NE(winner(result), 0U);
}

TEST(RaceTest, WhoFailsTheFinalistsCheckMakesRoomForTheNext) {
  ScriptedRace race(ramp(30, 0.01));
  race.runner.checked = [](Runner::Id id, Runner::CheckDepth depth) {
    return id == 1 && depth == Runner::CheckDepth::finalist ? Outcome::out_of_bounds : Outcome::ok;
  };
  const auto result = must(race.run());
  EXPECT_EQ(winner(result), 2U);
  ASSERT_EQ(result.failed.size(), 1U);
  EXPECT_EQ(result.failed[0].second.outcome, Outcome::out_of_bounds);
  for (const auto& finalist : result.finalists) {
    EXPECT_TRUE(finalist.check.exact);
    EXPECT_TRUE(finalist.check.after_timing);
  }
}

TEST(RaceTest, WhereEveryFinalistFailsTheReserveRaces) {
  ScriptedRace race(ramp(30, 0.01));
  race.runner.wrong_after_timing = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  const auto result = must(race.run());
  ASSERT_FALSE(result.finalists.empty());
  EXPECT_EQ(winner(result), 9U);
}

TEST(RaceTest, WhereAllFailThereIsNoFinalist) {
  ScriptedRace race(ramp(30, 0.01));
  race.runner.outcome = [](Runner::Id, int) { return Outcome::wrong_result; };
  const auto result = must(race.run());
  EXPECT_TRUE(result.finalists.empty());
  EXPECT_GE(result.failed.size(), 24U);
}

TEST(RaceTest, ASingleSurvivorWins) {
  ScriptedRace race({10});
  race.runner.noise = 0.01;
  const auto result = must(race.run());
  EXPECT_EQ(result.decision.verdict, Verdict::win);
  EXPECT_EQ(result.finalists.size(), 1U);
}

TEST(RaceTest, SamplesBeforeARestartDoNotCount) {
  ScriptedRace race({11, 10, 10.2});
  race.runner.restarts_at_call = {8};
  const auto result = must(race.run());
  EXPECT_EQ(result.rounds.sm_probe_us.size(), 16U);
  EXPECT_EQ(race.runner.calls, 1 + 7 + 16);
  EXPECT_EQ(winner(result), 1U);
}

TEST(RaceTest, EndlessRestartsEndTheRace) {
  ScriptedRace race({11, 10, 10.2});
  for (int i = 0; i < 100; ++i) race.runner.restarts_at_call.insert(i);
  EXPECT_THAT(race.run(), Fails(ErrorCode::device));
}

TEST(RaceTest, WhoBecameMuchFasterIsCheckedAgain) {
  ScriptedRace race(ramp(30, 0.01));
  race.survivors[5].score_us = 11.9;
  race.us[5] = 8;
  race.runner.checked = [](Runner::Id id, Runner::CheckDepth) {
    return id == 5 ? Outcome::wrong_result : Outcome::ok;
  };
  const auto result = must(race.run());
  EXPECT_EQ(race.runner.checks[5], 1);
  EXPECT_EQ(race.runner.checks[1], 0);
  EXPECT_FALSE(is_finalist(result, 5));
  EXPECT_EQ(winner(result), 1U);
}

/// Candidate 1 is the fastest at a shared clock, which the device lowers if it runs alone for more
/// than 20 ms.
void draw_much_power(ScriptedRace& race) {
  race.options.alone = true;
  race.runner.noise = 0.002;
  auto alone_since = std::make_shared<std::pair<Runner::Id, double>>(-1, 0);
  const auto slowdown = [alone_since](Runner::Id id, double seconds) {
    if (std::exchange(alone_since->first, id) != id) alone_since->second = seconds;
    return id == 1 && seconds - alone_since->second > 0.02 ? 1.1 : 1.0;
  };
  race.runner.time_us = [&race, slowdown](Runner::Id id, double seconds) {
    return id < 0 ? 100 : race.us[static_cast<std::size_t>(id)] * slowdown(id, seconds);
  };
  race.runner.sm_mhz = [slowdown](Runner::Id id, double seconds) {
    return 1980 / slowdown(id, seconds);
  };
}

/// Returns whether nothing that was found lowers the trust in the result.
bool trusted(const RaceResult& result) { return result.audit.trust() == Trust::a; }

TEST(RaceTest, WithEqualClocksAloneTheRoundsDecide) {
  ScriptedRace race({14, 10, 10.3, 10.6, 12});
  race.options.alone = true;
  const auto result = must(race.run());
  EXPECT_FALSE(result.power_limited);
  EXPECT_EQ(result.rounds.block_rounds, 0);
  EXPECT_TRUE(trusted(result));
  EXPECT_GT(race.runner.samples[4], race.runner.samples[0] + 40) << "far behind, it is not asked";
}

TEST(RaceTest, ClocksThatAreNotKnownAreNotEqual) {
  ScriptedRace race({11, 10, 10.3});
  race.options.alone = true;
  race.runner.sm_mhz = [](Runner::Id, double) { return 0.0; };
  const auto result = must(race.run());
  EXPECT_TRUE(result.power_limited);
  EXPECT_FALSE(trusted(result));
}

TEST(RaceTest, LongBlocksDecideWhereThePowerLimitDoes) {
  ScriptedRace race({14, 10, 10.3, 10.6, 12});
  draw_much_power(race);
  race.options.long_blocks = true;
  const auto result = must(race.run());
  EXPECT_TRUE(result.power_limited);
  EXPECT_EQ(winner(result), 2U);
  EXPECT_TRUE(trusted(result));
  EXPECT_EQ(result.rounds.block_rounds, 32);
  const auto& finalists = result.finalists;
  const std::size_t rounds = result.rounds.sm_probe_us.size();
  for (const std::size_t in : {1U, 2U, 3U}) EXPECT_EQ(finalists[in].samples.size(), rounds + 32);
  for (const std::size_t out : {0U, 4U}) EXPECT_EQ(finalists[out].samples.size(), rounds);
  EXPECT_GT(race.runner.seconds, 12);
  EXPECT_LT(race.runner.seconds, 20);
}

TEST(RaceTest, ShortBlocksDecideTooAndCostTrust) {
  ScriptedRace race({14, 10, 10.3, 10.6, 12});
  draw_much_power(race);
  const auto result = must(race.run());
  EXPECT_EQ(winner(result), 2U);
  EXPECT_EQ(result.rounds.block_rounds, 12);
  EXPECT_EQ(result.audit.trust(), Trust::b);
  EXPECT_LT(race.runner.seconds, 4);
}

TEST(RaceTest, FurtherShortBlocksFollowWhereTheyLeaveTheVerdictOpen) {
  const auto until = [](double seconds) {
    ScriptedRace race({14, 10, 10.3, 10.45, 12});
    draw_much_power(race);
    race.runner.noise = 0.04;
    race.options.extend_until = seconds;
    return must(race.run());
  };
  const RaceResult short_of_time = until(0);
  EXPECT_EQ(short_of_time.rounds.block_rounds, 12);
  EXPECT_EQ(short_of_time.decision.verdict, Verdict::unresolved);
  const RaceResult all = until(100);
  EXPECT_GT(all.rounds.block_rounds, 12);
  EXPECT_EQ(all.rounds.block_rounds % 12, 0);
  EXPECT_LE(all.rounds.block_rounds, 48);
  EXPECT_EQ(all.decision.verdict, Verdict::win);
  EXPECT_EQ(winner(all), 2U);
  const auto& finalist = all.finalists[all.decision.winner];
  const std::size_t in_rounds = all.rounds.sm_probe_us.size();
  EXPECT_LE(finalist.samples.size(), in_rounds + static_cast<std::size_t>(all.rounds.block_rounds));
  EXPECT_EQ(all.audit.trust(), Trust::b);
}

TEST(RaceTest, AClockThatDriftsForAllIsNoDifference) {
  ScriptedRace race({14, 10, 10.3, 10.6, 12});
  race.options.alone = true;
  const auto drift = [](double seconds) { return 1 - 0.06 * std::min(seconds, 5.0); };
  race.runner.time_us = [&race, drift](Runner::Id id, double seconds) {
    return (id < 0 ? 100 : race.us[static_cast<std::size_t>(id)]) / drift(seconds);
  };
  race.runner.sm_mhz = [drift](Runner::Id, double seconds) { return 1980 * drift(seconds); };
  const auto result = must(race.run());
  EXPECT_EQ(winner(result), 1U);
  EXPECT_EQ(result.decision.verdict, Verdict::win);
  EXPECT_FALSE(result.power_limited);
  EXPECT_EQ(result.rounds.block_rounds, 0);
  EXPECT_GT(race.runner.samples[1], race.runner.samples[4] + 300) << "blocks were not taken";
  EXPECT_TRUE(trusted(result));
}

TEST(RaceTest, WhatDoesNotFitTheTimeIsNotBegunAndCostsTrust) {
  const auto until = [](double seconds) {
    ScriptedRace race({14, 10, 10.3, 10.6, 12});
    draw_much_power(race);
    race.options.alone_until = seconds;
    auto result = must(race.run());
    return std::pair(std::move(result), race.runner.seconds);
  };
  const double all = until(100).second;
  const auto [looked, looked_seconds] = until(all - 0.5);
  EXPECT_TRUE(looked.power_limited);
  EXPECT_LT(looked_seconds, all - 1);
  const auto [rounds, rounds_seconds] = until(0);
  EXPECT_FALSE(rounds.power_limited);
  EXPECT_LT(rounds_seconds, looked_seconds - 0.2);
  for (const RaceResult* result : {&looked, &rounds}) {
    EXPECT_EQ(winner(*result), 1U) << "the rounds decide";
    EXPECT_EQ(result->rounds.block_rounds, 0);
    EXPECT_EQ(result->audit.trust(), Trust::b);
  }
}

TEST(RaceTest, InBurstsOneClockIsSharedAndTheRoundsDecide) {
  ScriptedRace race({14, 10, 10.3, 10.6, 12});
  draw_much_power(race);
  race.options.alone = false;
  const auto result = must(race.run());
  EXPECT_FALSE(result.power_limited);
  EXPECT_EQ(winner(result), 1U);
  EXPECT_EQ(result.rounds.block_rounds, 0);
}

TEST(RaceTest, WhoFailsInABlockLeavesTheFinals) {
  ScriptedRace race({14, 10, 10.3, 10.6, 12});
  draw_much_power(race);
  race.runner.outcome = [](Runner::Id id, int sample) {
    return id == 1 && sample == 100 ? Outcome::illegal_address : Outcome::ok;
  };
  const auto result = must(race.run());
  EXPECT_FALSE(is_finalist(result, 1));
  EXPECT_EQ(winner(result), 2U);
  EXPECT_EQ(result.rounds.block_rounds, 0);
  EXPECT_EQ(result.audit.trust(), Trust::b);
}

TEST(RaceTest, TheSameSeedGivesTheSameRace) {
  const auto run = [] {
    ScriptedRace race(ramp(60, 0.002), 7);
    race.runner.noise = 0.01;
    return std::move(race.run()).value();
  };
  const RaceResult a = run();
  const RaceResult b = run();
  ASSERT_EQ(a.finalists.size(), b.finalists.size());
  EXPECT_EQ(winner(a), winner(b));
  EXPECT_EQ(a.rounds, b.rounds);
  for (std::size_t i = 0; i < a.finalists.size(); ++i) {
    EXPECT_EQ(a.finalists[i].survivor, b.finalists[i].survivor);
    EXPECT_EQ(a.finalists[i].samples, b.finalists[i].samples);
  }
}

TEST(RaceTest, TheOrderOfTheSurvivorsDoesNotMatter) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    ScriptedRace forward({10, 10.01, 10.02, 10.0, 10.03}, seed);
    forward.runner.noise = 0.003;
    for (Survivor& survivor : forward.survivors) survivor.traits.is_default = false;
    ScriptedRace backward = forward;
    backward.runner.time_us = [&](Runner::Id id, double) {
      return id < 0 ? 100 : backward.us[static_cast<std::size_t>(id)];
    };
    backward.options.clock_seconds = [&] { return backward.runner.seconds; };
    std::reverse(backward.survivors.begin(), backward.survivors.end());
    const auto a = forward.run();
    const auto b = backward.run();
    ASSERT_TRUE(a && b);
    EXPECT_EQ(a.value().decision.verdict, Verdict::tie);
    EXPECT_EQ(forward.survivors[winner(a.value())].choice.id(),
              backward.survivors[winner(b.value())].choice.id());
  }
}

}  // namespace
}  // namespace kernwright
