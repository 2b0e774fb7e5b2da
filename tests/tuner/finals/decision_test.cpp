#include "tuner/finals/decision.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>
#include <tuple>

#include "bench/simulation/random_stream.h"
#include "cache/records/record_view.h"
#include "support/random.h"
#include "tests/tuner/finals/around.h"

namespace kernwright {
namespace {

using Place = Standing::Place;

std::vector<double> normal(double us, double sigma, std::uint64_t seed, int count = 64) {
  RandomStream random(seed);
  std::vector<double> samples;
  for (int i = 0; i < count; ++i) samples.push_back(us * std::exp(sigma * random.normal()));
  return samples;
}

RankedConfiguration finalist(std::string id, std::vector<double> samples, bool is_default = false,
                             int registers = 64) {
  RankedConfiguration made;
  made.choice.kernel_template = std::move(id);
  made.measurement.samples_us = std::move(samples);
  made.traits.is_default = is_default;
  made.traits.resources.registers = registers;
  return made;
}

RankedConfiguration incumbent(std::string id, std::vector<double> samples) {
  RankedConfiguration made = finalist(std::move(id), std::move(samples));
  made.traits.is_incumbent = true;
  return made;
}

std::size_t winner(std::span<const RankedConfiguration> finalists) {
  return decide(finalists, {}).winner;
}

TEST(DecisionTest, AClearlyFasterOneBeatsTheDefault) {
  const RankedConfiguration all[] = {finalist("default", around(10, 0.005, 0), true),
                                     finalist("fast", around(9.5, 0.005, 1))};
  const Decision decision = decide(all, {});
  EXPECT_EQ(decision.winner, 1U);
  EXPECT_EQ(decision.leader, 1U);
  EXPECT_EQ(decision.verdict, Verdict::win);
  EXPECT_TRUE(decision.settled);
  EXPECT_EQ(decision.standings[0].place, Place::slower);
  EXPECT_TRUE(decision.standings[0].out);
  EXPECT_EQ(decision.standings[1].place, Place::leader);
  EXPECT_NEAR(decision.standings[0].slowdown.estimate, std::log(10 / 9.5), 0.01);
}

TEST(DecisionTest, WithinTheNoiseTheDefaultStays) {
  const RankedConfiguration all[] = {finalist("a", around(9.9, 0.05, 1)),
                                     finalist("default", around(10, 0.05, 0), true)};
  const Decision decision = decide(all, {});
  EXPECT_EQ(decision.winner, 1U);
  EXPECT_EQ(decision.verdict, Verdict::unresolved);
  EXPECT_FALSE(decision.settled);
  EXPECT_EQ(decision.standings[1].place, Place::open);
}

TEST(DecisionTest, OthersTieOnlyWithinHalfAPercent) {
  const RankedConfiguration all[] = {finalist("a", around(10, 0.0001, 1), false, 128),
                                     finalist("b", around(10.02, 0.0001, 0), false, 64),
                                     finalist("c", around(10.1, 0.0001, 0), false, 32)};
  const Decision decision = decide(all, {});
  EXPECT_EQ(decision.winner, 1U);
  EXPECT_EQ(decision.leader, 0U);
  EXPECT_EQ(decision.verdict, Verdict::tie);
  EXPECT_EQ(decision.standings[1].place, Place::tied);
  EXPECT_EQ(decision.standings[2].place, Place::slower);
}

TEST(DecisionTest, TooFewRoundsSayNothing) {
  const RankedConfiguration all[] = {finalist("a", std::vector<double>(kMinRounds - 1, 10.0)),
                                     finalist("b", std::vector<double>(kMinRounds - 1, 10.2))};
  EXPECT_EQ(decide(all, {}).verdict, Verdict::unresolved);
  const RankedConfiguration enough[] = {finalist("a", std::vector<double>(kMinRounds, 10.0)),
                                        finalist("b", std::vector<double>(kMinRounds, 10.2))};
  EXPECT_EQ(decide(enough, {}).verdict, Verdict::win);
}

TEST(DecisionTest, FewRoundsStillTellWhatIsFarSlower) {
  const RankedConfiguration all[] = {finalist("a", std::vector<double>(3, 10.0)),
                                     finalist("default", {26, 26.1, 26.2}, true)};
  EXPECT_EQ(winner(all), 0U);
}

TEST(DecisionTest, ASingleFinalistWins) {
  const RankedConfiguration all[] = {finalist("a", around(10, 0.01, 0))};
  EXPECT_EQ(decide(all, {}).verdict, Verdict::win);
  EXPECT_TRUE(decide(all, {}).settled);
}

TEST(DecisionTest, TiesAreBrokenInAFixedOrder) {
  // Each step makes the preferred one worse in everything that comes later.
  const Traits plain{.resources = {.registers = 64}, .smem_bytes = 1024};
  struct Step {
    const char* what;
    std::function<void(Traits& preferred, Traits& other)> make;
  };
  const Step steps[] = {
      {"incumbent", [](Traits& p, Traits& o) { p.is_incumbent = true, o.is_default = true; }},
      {"default", [](Traits& p, Traits&) { p.is_default = true, p.deterministic = false; }},
      {"deterministic",
       [](Traits& p, Traits& o) { o.deterministic = false, p.workspace_bytes = 9; }},
      {"workspace", [](Traits& p, Traits& o) { o.workspace_bytes = 1, p.warned = true; }},
      {"warnings", [](Traits& p, Traits& o) { o.warned = true, p.resources.registers = 255; }},
      {"registers",
       [](Traits& p, Traits& o) { o.resources.registers = 65, p.smem_bytes = 1 << 20; }},
      {"shared memory", [](Traits&, Traits& o) { o.smem_bytes = 1025; }}};
  for (const Step& step : steps) {
    for (const bool preferred_is_slower : {false, true}) {
      RankedConfiguration all[] = {
          finalist("o", around(preferred_is_slower ? 10 : 10.02, 0.001, 1)),
          finalist("p", around(preferred_is_slower ? 10.02 : 10, 0.001, 2))};
      all[0].traits = all[1].traits = plain;
      step.make(all[1].traits, all[0].traits);
      EXPECT_EQ(winner(all), 1U) << step.what;
    }
  }
}

TEST(DecisionTest, FullTiesDoNotDependOnTheOrder) {
  const RankedConfiguration a = finalist("a", around(10, 0, 0));
  const RankedConfiguration b = finalist("b", around(10, 0, 0));
  const RankedConfiguration forward[] = {a, b};
  const RankedConfiguration backward[] = {b, a};
  EXPECT_EQ(forward[winner(forward)].choice.id(), backward[winner(backward)].choice.id());
}

TEST(DecisionTest, NeitherTheOrderOfFinalistsNorThatOfRoundsMatters) {
  std::vector<RankedConfiguration> all;
  for (int i = 0; i < 6; ++i) {
    all.push_back(finalist(std::string(1, static_cast<char>('a' + i)),
                           normal(10 + 0.01 * i, 0.005, static_cast<std::uint64_t>(i) + 1)));
  }
  const std::string expected = all[winner(all)].choice.id();
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<RankedConfiguration> permuted = all;
    for (std::size_t left = permuted.size(); left > 1; --left) {
      std::swap(permuted[left - 1], permuted[hash_at(seed, left) % left]);
    }
    for (std::size_t left = 64; left > 1; --left) {
      const std::size_t other = hash_at(seed, 100 + left) % left;
      for (RankedConfiguration& f : permuted)
        std::swap(f.measurement.samples_us[left - 1], f.measurement.samples_us[other]);
    }
    EXPECT_EQ(permuted[winner(permuted)].choice.id(), expected) << seed;
  }
}

TEST(DecisionTest, TheIncumbentYieldsOnlyToWhatIsClearlyFaster) {
  // The interval must be above 1 % and above its own width.
  for (const auto& [us, noise, stays] : {std::tuple{10.08, 0.001, true},
                                         {10.15, 0.001, false},
                                         {10.25, 0.02, true},
                                         {11.00, 0.02, false}}) {
    const RankedConfiguration all[] = {finalist("fast", normal(10, noise, 1)),
                                       incumbent("old", normal(us, noise, 2))};
    EXPECT_EQ(winner(all), stays ? 1U : 0U) << us;
    EXPECT_EQ(decide(all, {}).verdict, stays ? Verdict::tie : Verdict::win) << us;
  }
}

TEST(DecisionTest, MoreRoundsMayStillDismissAnIncumbentInTheNoise) {
  const RankedConfiguration few[] = {finalist("fast", normal(10, 0.02, 1)),
                                     incumbent("old", normal(10.25, 0.02, 2))};
  EXPECT_FALSE(decide(few, {}).settled);
  const RankedConfiguration many[] = {finalist("fast", normal(10, 0.02, 1, 1024)),
                                      incumbent("old", normal(10.25, 0.02, 2, 1024))};
  EXPECT_TRUE(decide(many, {}).settled);
  EXPECT_EQ(winner(many), 0U);
}

TEST(DecisionTest, WhoTiesWithTheLeaderMustBeatTheDefaultToo) {
  // b ties with a and has fewer registers; the default is slower than a, but not than b.
  std::vector<RankedConfiguration> all = {finalist("a", normal(10, 0.0002, 1, 256), false, 128),
                                          finalist("b", normal(10.04, 0.0002, 2, 256), false, 32)};
  EXPECT_EQ(winner(all), 1U);
  all.push_back(finalist("default", normal(10.058, 0.006, 3, 256), true));
  const Decision decision = decide(all, {});
  ASSERT_EQ(decision.standings[1].place, Place::tied);
  ASSERT_EQ(decision.standings[2].place, Place::slower);
  EXPECT_EQ(decision.winner, 0U);
}

TEST(DecisionTest, OfDefaultAndPredictedChoiceAnOpenOneYieldsToTheFaster) {
  std::vector<RankedConfiguration> all = {finalist("predicted", normal(10, 0.08, 1)),
                                          finalist("default", normal(10.4, 0.08, 2), true)};
  ASSERT_EQ(decide(all, {}).standings[1].place, Place::open);
  EXPECT_EQ(winner(all), 1U) << "a newcomer";
  all[0].traits.is_predicted = true;
  EXPECT_EQ(winner(all), 0U);
  all[1].traits.is_predicted = true;
  all[0].traits.is_predicted = false;
  EXPECT_EQ(winner(all), 1U) << "the default is the prediction";
  // A tie stays with the default.
  all = {finalist("predicted", normal(10, 0.0002, 1)),
         finalist("default", normal(10.03, 0.0002, 2), true)};
  all[0].traits.is_predicted = true;
  EXPECT_EQ(winner(all), 1U);
}

TEST(DecisionTest, OpenOnesBeyondAPercentDoNotWinByTheirTraits) {
  const RankedConfiguration all[] = {finalist("fast", normal(10, 0.05, 1), false, 128),
                                     finalist("small", normal(10.25, 0.05, 2), false, 32)};
  const Decision decision = decide(all, {});
  ASSERT_EQ(decision.verdict, Verdict::unresolved);
  ASSERT_GT(decision.standings[1].slowdown.estimate, kEquivalence);
  EXPECT_EQ(decision.winner, 0U);
}

TEST(DecisionTest, TwoModesAreJudgedByTheSlowerOne) {
  std::vector<double> modes = normal(10, 0.002, 1);
  for (std::size_t i = 0; i < modes.size(); i += 3) modes[i] *= 1.08;
  const RankedConfiguration all[] = {finalist("two modes", modes),
                                     finalist("steady", normal(10.3, 0.002, 2)),
                                     finalist("other", normal(10.9, 0.002, 3))};
  const Decision decision = decide(all, {});
  EXPECT_TRUE(decision.standings[0].bimodal);
  EXPECT_FALSE(decision.standings[1].bimodal);
  EXPECT_EQ(decision.winner, 1U);
  EXPECT_EQ(decision.verdict, Verdict::win);
  EXPECT_NEAR(decision.standings[0].slowdown.estimate, std::log(10.8 / 10.3), 0.005);
}

TEST(DecisionTest, AStepThatAllTakeMakesNobodyBimodal) {
  std::vector<RankedConfiguration> all = {finalist("a", normal(10, 0.002, 1)),
                                          finalist("b", normal(10.3, 0.002, 2))};
  FinalRounds rounds;
  rounds.sm_probe_us = normal(100, 0.002, 3);
  rounds.dram_probe_us = normal(100, 0.002, 4);
  for (std::size_t r = 20; r < 64; ++r) {
    for (RankedConfiguration& f : all) f.measurement.samples_us[r] *= 1.1;
    rounds.sm_probe_us[r] *= 1.1;
    rounds.dram_probe_us[r] *= 1.1;
  }
  const Decision decision = decide(all, rounds);
  EXPECT_FALSE(decision.standings[0].bimodal);
  EXPECT_FALSE(decision.standings[1].bimodal);
  EXPECT_EQ(decision.verdict, Verdict::win);
}

TEST(DecisionTest, OutliersAreNoMode) {
  std::vector<double> samples = normal(10, 0.002, 1);
  for (const std::size_t i : {3U, 17U, 40U}) samples[i] *= 1.15;
  const RankedConfiguration all[] = {finalist("a", samples), finalist("b", normal(10.3, 0.002, 2))};
  EXPECT_FALSE(decide(all, {}).standings[0].bimodal);
  EXPECT_EQ(winner(all), 0U);
}

TEST(DecisionTest, DroppedRoundsDoNotCount) {
  std::vector<RankedConfiguration> all = {finalist("a", normal(10, 0.002, 1)),
                                          finalist("b", normal(10.3, 0.002, 2))};
  FinalRounds rounds;
  for (int r = 0; r < 16; ++r) {
    all[0].measurement.samples_us[static_cast<std::size_t>(r)] *= 1.5;
    rounds.dropped.push_back(r);
  }
  EXPECT_EQ(decide(all, rounds).verdict, Verdict::win);
  EXPECT_FALSE(decide(all, rounds).disturbed);
  rounds.dropped.push_back(16);
  const Decision decision = decide(all, rounds);
  EXPECT_TRUE(decision.disturbed);
  EXPECT_EQ(decision.verdict, Verdict::unresolved);
}

TEST(DecisionTest, DisturbedFinalsLeaveTheVerdictOpenAndCountAllTheSame) {
  FinalRounds rounds;
  for (int r = 0; r < 20; ++r) rounds.dropped.push_back(r);
  std::vector<RankedConfiguration> all = {finalist("fast", normal(10, 0.002, 1)),
                                          finalist("default", normal(12, 0.002, 2), true),
                                          incumbent("old", normal(11, 0.002, 3))};
  for (std::size_t r = 0; r < 20; ++r) {
    for (RankedConfiguration& one : all) one.measurement.samples_us[r] *= 1.2;
  }
  const Decision decision = decide(all, rounds);
  EXPECT_TRUE(decision.disturbed);
  EXPECT_EQ(decision.verdict, Verdict::unresolved);
  EXPECT_EQ(decision.winner, 0U);
}

TEST(DecisionTest, DisturbedFinalsThatTellNobodyApartKeepWhatThereIs) {
  FinalRounds rounds;
  for (int r = 0; r < 20; ++r) rounds.dropped.push_back(r);
  std::vector<RankedConfiguration> all = {finalist("new", around(9.9, 0.05, 1)),
                                          finalist("default", around(10, 0.05, 0), true)};
  EXPECT_EQ(decide(all, rounds).winner, 1U);
  all.push_back(incumbent("old", around(10.1, 0.05, 2)));
  EXPECT_EQ(decide(all, rounds).winner, 2U);
}

/// Slower than 10 us by 1 to 9 percent, in one slow swing: nearly all of it is one observation.
std::vector<double> drifting(int count) {
  std::vector<double> samples;
  for (int i = 0; i < count; ++i) {
    samples.push_back(10 * std::exp(0.05 + 0.04 * std::sin(6.28 * i / count)));
  }
  return samples;
}

TEST(DecisionTest, TheDefaultYieldsToWhoWasFasterInNearlyEveryRound) {
  for (const bool is_default : {true, false}) {
    std::vector<RankedConfiguration> all = {finalist("fast", normal(10, 0.0005, 1, 25)),
                                            finalist("known", drifting(25), is_default)};
    all[1].traits.is_predicted = !is_default;
    const Decision decision = decide(all, {});
    EXPECT_EQ(decision.standings[1].place, Place::open);
    EXPECT_EQ(decision.verdict, Verdict::unresolved);
    EXPECT_EQ(decision.winner, 0U);
    for (const std::size_t at : {7U, 18U}) all[1].measurement.samples_us[at] = 9.9;
    EXPECT_EQ(decide(all, {}).winner, 0U) << "23 of 25 rounds";
    all[1].measurement.samples_us[12] = 9.9;
    EXPECT_EQ(decide(all, {}).winner, 1U) << "22 of 25 rounds";
  }
}

TEST(DecisionTest, WhoDroppedOutWasSlowerThanTheFastestOfThen) {
  std::vector<double> slow = normal(11, 0.002, 3);
  slow.resize(16);
  const RankedConfiguration all[] = {finalist("a", normal(10, 0.002, 1)),
                                     finalist("b", normal(10.01, 0.002, 2)),
                                     finalist("slow", slow)};
  const Decision decision = decide(all, {});
  EXPECT_EQ(decision.verdict, Verdict::tie);
  EXPECT_EQ(decision.standings[2].place, Place::slower);
  EXPECT_NEAR(decision.standings[2].slowdown.estimate, std::log(1.1), 0.005);
}

TEST(DecisionTest, BlocksDecideAmongThoseThatHaveThem) {
  std::vector<RankedConfiguration> all = {finalist("hot", normal(10, 0.002, 1)),
                                          finalist("cool", normal(10.3, 0.002, 2)),
                                          finalist("slow", normal(12, 0.002, 3))};
  FinalRounds rounds;
  rounds.sm_probe_us = normal(100, 0.002, 4);
  rounds.dram_probe_us = normal(100, 0.002, 5);
  EXPECT_EQ(decide(all, rounds).winner, 0U);
  rounds.block_rounds = 32;
  for (const auto& [at, us] : {std::pair{std::size_t{0}, 11.0}, {std::size_t{1}, 10.4}}) {
    for (const double sample : normal(us, 0.002, 6 + at, 32))
      all[at].measurement.samples_us.push_back(sample);
  }
  const Decision decision = decide(all, rounds);
  EXPECT_EQ(decision.winner, 1U);
  EXPECT_EQ(decision.verdict, Verdict::win);
  EXPECT_NEAR(decision.standings[0].slowdown.estimate, std::log(11 / 10.4), 0.005);
  EXPECT_EQ(decision.standings[2].place, Place::slower);
}

TEST(DecisionTest, IntervalsOfBlocksAreThoseOfSignedRanks) {
  std::vector<RankedConfiguration> all = {finalist("fast", normal(10, 0.002, 1)),
                                          finalist("slow", normal(10, 0.002, 2))};
  FinalRounds rounds;
  rounds.sm_probe_us = normal(100, 0.002, 4);
  rounds.dram_probe_us = normal(100, 0.002, 5);
  rounds.block_rounds = 12;
  for (int i = 0; i < 12; ++i) {
    all[0].measurement.samples_us.push_back(10);
    // One of them is faster; by order statistics of 12 the interval would begin there.
    constexpr double kPercent[] = {-0.4, 3, 1, 4, 2, 6, 3, 5, 1, 4, 2, 5};
    all[1].measurement.samples_us.push_back(10 * std::exp(kPercent[i] / 100));
  }
  const Decision decision = decide(all, rounds);
  EXPECT_EQ(decision.leader, 0U);
  EXPECT_EQ(decision.standings[1].place, Place::slower);
  // P(T <= 2) = 3 / 4096, so the third smallest mean of two: -0.4, 0.3, 0.3, 0.8, 0.8 and so on.
  EXPECT_NEAR(decision.standings[1].slowdown.low, 0.003, 1e-6);
  EXPECT_NEAR(decision.standings[1].slowdown.estimate, 0.03, 0.0025);
  EXPECT_EQ(decision.verdict, Verdict::win);
}

TEST(DecisionTest, WhoDroppedOutOfTheRoundsMayWinTheBlocks) {
  std::vector<RankedConfiguration> all = {finalist("hot", normal(10, 0.002, 1)),
                                          finalist("cool", normal(10.3, 0.002, 2, 16))};
  FinalRounds rounds;
  rounds.sm_probe_us = normal(100, 0.002, 4);
  rounds.dram_probe_us = normal(100, 0.002, 5);
  rounds.block_rounds = 32;
  for (const auto& [at, us] : {std::pair{std::size_t{0}, 11.0}, {std::size_t{1}, 10.4}}) {
    all[at].in_blocks = true;
    for (const double sample : normal(us, 0.002, 6 + at, 32))
      all[at].measurement.samples_us.push_back(sample);
  }
  const Decision decision = decide(all, rounds);
  EXPECT_EQ(decision.winner, 1U);
  EXPECT_EQ(decision.verdict, Verdict::win);
}

TEST(DecisionTest, ATieOfBlocksFallsToWhomTheRoundsDidNotFindSlower) {
  std::vector<RankedConfiguration> all = {finalist("default", normal(11, 0.002, 1), true),
                                          finalist("fast", normal(10, 0.002, 2))};
  FinalRounds rounds;
  rounds.sm_probe_us = normal(100, 0.002, 4);
  rounds.dram_probe_us = normal(100, 0.002, 5);
  rounds.block_rounds = 12;
  const std::vector<RankedConfiguration> in_rounds = all;
  const auto with_blocks = [&](double default_us, double fast_us) {
    all = in_rounds;
    for (const auto& [at, us] :
         {std::pair{std::size_t{0}, default_us}, {std::size_t{1}, fast_us}}) {
      for (const double sample : normal(us, 0.05, 6 + at, 12))
        all[at].measurement.samples_us.push_back(sample);
    }
    return decide(all, rounds);
  };
  Decision decision = with_blocks(10.1, 10);
  EXPECT_TRUE(decision.standings[0].equal());
  EXPECT_EQ(decision.verdict, Verdict::unresolved);
  EXPECT_EQ(decision.winner, 1U);
  // Clearly faster alone, it wins all the same: it lowers the clock less.
  decision = with_blocks(8, 10);
  EXPECT_EQ(decision.verdict, Verdict::win);
  EXPECT_EQ(decision.winner, 0U);
}

TEST(DecisionTest, EqualOnesAreRarelyCalledAWin) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::vector<RankedConfiguration> all;
    for (std::uint64_t i = 0; i < 8; ++i) {
      all.push_back(finalist(std::to_string(i), normal(10, 0.01, 8 * seed + i + 1, 16)));
    }
    EXPECT_NE(decide(all, {}).verdict, Verdict::win) << seed;
  }
}

TEST(DecisionTest, ARecordGivesItsVerdictBack) {
  const auto ranked = [](int a, std::vector<double> samples) {
    RankedConfiguration r;
    r.choice = {"toy/plain", Configuration({{"A", a}})};
    r.measurement.samples_us = std::move(samples);
    return r;
  };
  TuningRecord record;
  record.winner = ranked(2, normal(10.02, 0.001, 2));
  record.winner.traits.is_default = true;
  record.runners_up = {ranked(1, normal(10, 0.001, 1)), ranked(3, normal(10.5, 0.001, 3))};
  record.rounds.sm_probe_us = normal(100, 0.001, 4);
  record.rounds.dram_probe_us = normal(100, 0.001, 5);
  const Decision decision = decide(record);
  EXPECT_EQ(decision.winner, 0U);
  EXPECT_EQ(decision.leader, 1U);
  EXPECT_EQ(decision.verdict, Verdict::tie);
}

TEST(DecisionTest, ARecordOfASearchThatHasHardlyLookedIsUnresolved) {
  TuningRecord record;
  record.winner.measurement.samples_us = normal(10, 0.001, 1);
  record.rounds.sm_probe_us = normal(100, 0.001, 2);
  record.candidates = 2341;
  const auto verdict = [&](std::string_view reason, int measured, int failed) {
    record.search.stop_reason = reason;
    record.measured = measured;
    record.search.failed = failed;
    EXPECT_EQ(hardly_looked(record), decide(record).verdict == Verdict::unresolved);
    return decide(record).verdict;
  };
  EXPECT_EQ(verdict("budget", 1, 0), Verdict::unresolved);
  EXPECT_EQ(verdict("trials", 8, 7), Verdict::unresolved);
  EXPECT_EQ(verdict("budget", kFewestLooks - 2, 2), Verdict::win) << "a failure is an answer too";
  EXPECT_EQ(verdict("roofline", 1, 0), Verdict::win) << "there is nothing left to find";
  record.candidates = 4;
  EXPECT_EQ(verdict("budget", 3, 0), Verdict::unresolved);
  EXPECT_EQ(verdict("budget", 4, 0), Verdict::win) << "that is all there are";
}

}  // namespace
}  // namespace kernwright
