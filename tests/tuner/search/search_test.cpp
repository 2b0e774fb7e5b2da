#include "tuner/search/search.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/simulation/random_stream.h"
#include "tests/results.h"
#include "tests/tuner/toy.h"
#include "tuner/finals/decision.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

bool is(const Candidate& candidate, int a, int b, int r) {
  return candidate.kernel_template->name == "toy/plain" &&
         candidate.configuration == Configuration({{"A", a}, {"B", b}, {"R", r}});
}

Choice plain(int a, int b, int r) {
  return {"toy/plain", Configuration({{"A", a}, {"B", b}, {"R", r}})};
}

const Trial& trial_of(const TuningResult& result, std::string_view id) {
  return *std::find_if(result.trials.begin(), result.trials.end(),
                       [&](const Trial& trial) { return trial.choice.id() == id; });
}

double steady_noise(int i) { return 0.001 * std::sin(i * 2.399); }

TEST(SearchTest, TheRecordHoldsTheFinalsAndGivesItsVerdictBack) {
  ToySession toy;
  toy.runner.time_us = bowl_us;
  toy.runner.noise = steady_noise;
  const auto result = must(toy.run());
  const TuningRecord& record = result.record;
  EXPECT_EQ(record.verdict, Verdict::win);
  EXPECT_EQ(record.trust, Trust::a);
  EXPECT_EQ(record.winner.measurement.samples_us.size(), record.rounds.sm_probe_us.size());
  EXPECT_EQ(record.winner.measurement.sm_mhz.size(), record.rounds.sm_probe_us.size());
  EXPECT_GE(record.rounds.sm_probe_us.size(), 16U);
  EXPECT_TRUE(record.check.unmapped);
  EXPECT_TRUE(record.check.after_timing);
  EXPECT_EQ(record.winner.launch_gap_us, 0.1);
  EXPECT_GT(record.settle_ms, 0);
  EXPECT_EQ(record.search.stop_reason, "exhausted");
  EXPECT_EQ(record.search.strategy, "exhaustive");
  EXPECT_EQ(record.search.compiled, 26);
  EXPECT_GE(record.search.raced, 8);
  const Decision again = decide(record);
  EXPECT_EQ(again.winner, 0U);
  EXPECT_EQ(again.verdict, record.verdict);
  for (std::size_t i = 0; i < record.runners_up.size(); ++i) {
    EXPECT_EQ(again.standings[i + 1].slowdown, record.runners_up[i].slowdown);
    EXPECT_EQ(again.standings[i + 1].equal(), record.runners_up[i].tied);
  }
  const auto parsed = must(parse_record(to_json(record)));
  EXPECT_EQ(decide(parsed).verdict, record.verdict);
}

TEST(SearchTest, ProgressIsToldFromTheStartAndWhileNothingIsReady) {
  ToySession toy;
  toy.compiler->seconds = 0.02;
  std::vector<TuningProgress> told;
  toy.options.progress = [&](const TuningProgress& progress) { told.push_back(progress); };
  const auto result = must(toy.run());
  ASSERT_GT(told.size(), result.trials.size()) << "also between two trials";
  EXPECT_EQ(told.front().measured, 0);
  EXPECT_EQ(told.front().candidates, 50);
  EXPECT_EQ(told.front().best_us, 0);
  EXPECT_EQ(told.back().measured, 50);
  for (std::size_t i = 1; i < told.size(); ++i) {
    EXPECT_GE(told[i].seconds, told[i - 1].seconds);
    EXPECT_GE(told[i].measured, told[i - 1].measured);
  }
}

TEST(SearchTest, TheEndOfTheScreeningIsToldOnceAndNothingIsCompiledBehindIt) {
  ToySession toy;
  TuningProgress last;
  toy.options.progress = [&](const TuningProgress& progress) { last = progress; };
  std::vector<TuningProgress> at_the_end;
  toy.options.screened = [&] { at_the_end.push_back(last); };
  const auto result = must(toy.run());
  ASSERT_EQ(at_the_end.size(), 1U);
  EXPECT_EQ(at_the_end[0].measured, 50);
  EXPECT_EQ(at_the_end[0].compiled, result.record.search.compiled);
}

TEST(SearchTest, KnownFailuresAreNotTriedAgain) {
  ToySession toy;
  toy.runner.time_us = bowl_us;
  toy.earlier.failures = {{"toy/plain A=5 B=3 R=2", Outcome::timed_out}};
  const auto result = must(toy.run());
  EXPECT_EQ(result.record.search.rejected, 1);
  EXPECT_EQ(result.record.measured, 49);
  EXPECT_EQ(toy.runner.samples.count("toy/plain A=5 B=3 R=2"), 0U);
  const Trial& trial = trial_of(result, "toy/plain A=5 B=3 R=2");
  EXPECT_EQ(trial.outcome, Outcome::rejected);
  EXPECT_EQ(trial.detail, "failed before: timed_out");
  EXPECT_EQ(result.record.winner.measurement.median_us(), 4);
}

TEST(SearchTest, ADefaultThatIsKnownToFailIsLeftOut) {
  ToySession toy;
  toy.earlier.failures = {{"toy/other A=1", Outcome::illegal_address}};
  const auto result = must(toy.run());
  EXPECT_FALSE(result.record.baseline.has_value());
}

TEST(SearchTest, EqualCodeIsMeasuredOnce) {
  ToySession toy;
  toy.runner.time_us = [](const Candidate& c) { return 10.0 + 0.1 * bowl_us(c); };
  toy.compiler->behave = [](const CompileRequest& request, CompiledKernel kernel) {
    // B makes no difference.
    kernel.bits = concat(request.source, config_value(kernel.bits, "A"));
    return Result<CompiledKernel>(std::move(kernel));
  };
  const auto result = must(toy.run());
  EXPECT_EQ(result.record.measured, 50);
  EXPECT_EQ(toy.runner.prepared, 6 * 2 + 2);
  int aliases = 0;
  for (const Trial& trial : result.trials) {
    EXPECT_FALSE(trial.measurement.samples_us.empty());
    aliases += trial.detail.starts_with("the same code as ") ? 1 : 0;
  }
  EXPECT_EQ(aliases, 36);
}

TEST(SearchTest, AFirstSampleFarAboveTheBestEndsTheVisit) {
  ToySession toy;
  toy.runner.time_us = [](const Candidate& c) { return is(c, 5, 3, 2) ? 30.0 : bowl_us(c); };
  const auto result = must(toy.run());
  EXPECT_EQ(trial_of(result, "toy/plain A=5 B=3 R=2").measurement.samples_us.size(), 1U);
}

TEST(SearchTest, TheIncumbentIsMeasuredAndStaysUnlessClearlyBeaten) {
  for (const auto& [us, stays] : {std::pair{10.05, true}, {10.3, false}}) {
    ToySession toy;
    toy.runner.time_us = [time_us = us](const Candidate& c) {
      if (is(c, 6, 4, 2)) return time_us;
      return is(c, 1, 1, 1) ? 10.0 : 15.0;
    };
    toy.runner.noise = steady_noise;
    toy.earlier.incumbent = plain(6, 4, 2);
    const auto result = must(toy.run());
    EXPECT_EQ(result.record.winner.traits.is_incumbent, stays) << us;
    EXPECT_EQ(result.record.verdict, stays ? Verdict::tie : Verdict::win);
    EXPECT_EQ(decide(result.record).winner, 0U);
    EXPECT_EQ(result.trials[0].choice.id(), "toy/other A=1") << "the default comes first";
  }
}

TEST(SearchTest, TheIncumbentIsOneOfTheTrialsHoweverFew) {
  ToySession toy;
  toy.earlier.incumbent = plain(6, 4, 2);
  toy.options.budget.trials = 2;
  const auto result = must(toy.run());
  EXPECT_EQ(result.trials.size(), 2U);
  EXPECT_TRUE(result.record.winner.traits.is_incumbent);
  EXPECT_EQ(result.record.search.stop_reason, "trials");
}

TEST(SearchTest, TheFirstChoiceIsMeasuredBesideTheDefaultHoweverLittleTime) {
  ToySession toy;
  toy.runner.time_us = bowl_us;
  toy.options.budget.seconds = 1e-3;
  const auto result = must(toy.run());
  EXPECT_EQ(result.trials.size(), 2U);
  EXPECT_EQ(result.record.search.stop_reason, "budget");
}

TEST(SearchTest, SlowDefaultsReachTheFinals) {
  ToySession toy;
  toy.runner.time_us = bowl_us;
  const auto result = must(toy.run());
  ASSERT_TRUE(result.record.baseline.has_value());
  EXPECT_EQ(result.record.baseline->measurement.median_us(), 50);
  EXPECT_FALSE(result.record.baseline->tied);
  EXPECT_NEAR(result.record.baseline->slowdown.estimate, std::log(50.0 / 3), 1e-9);
}

TEST(SearchTest, WhatOnlyTheFinalistsCheckFindsCostsItsCandidate) {
  ToySession toy;
  toy.runner.time_us = bowl_us;
  toy.runner.finalist = [](const Candidate& c) {
    return is(c, 5, 3, 2) ? Outcome::out_of_bounds : Outcome::ok;
  };
  const auto result = must(toy.run());
  EXPECT_EQ(result.record.winner.measurement.median_us(), 4);
  EXPECT_EQ(result.record.measured, 49);
  EXPECT_EQ(result.record.search.failed, 1);
  const Trial& trial = trial_of(result, "toy/plain A=5 B=3 R=2");
  EXPECT_EQ(trial.outcome, Outcome::out_of_bounds);
  EXPECT_EQ(trial.detail, "in the finals: injected");
  EXPECT_EQ(result.record.runners_up.size(), 7U) << "the next one moved up";
}

TEST(SearchTest, WhatDecaysWithRepetitionIsNoResult) {
  ToySession toy;
  toy.runner.time_us = bowl_us;
  toy.runner.after = [](const Candidate& c) {
    return is(c, 5, 3, 2) ? Outcome::wrong_result : Outcome::ok;
  };
  const auto result = must(toy.run());
  EXPECT_EQ(trial_of(result, "toy/plain A=5 B=3 R=2").outcome, Outcome::wrong_result);
  EXPECT_EQ(result.record.winner.measurement.median_us(), 4);
}

TEST(SearchTest, TrustIsThatOfTheWorstFinding) {
  for (const Trust trust : {Trust::a, Trust::b, Trust::c}) {
    ToySession toy;
    toy.runner.time_us = bowl_us;
    toy.runner.environment.rows = {{"clocks", Trust::a, "fine"}, {"host_load", trust, "busy"}};
    const auto result = must(toy.run());
    EXPECT_EQ(result.record.trust, trust);
    EXPECT_EQ(result.record.audit, toy.runner.environment);
  }
}

TEST(SearchTest, UnresolvedFinalsAreNotTrustedFully) {
  ToySession toy;
  toy.options.final_rounds = 16;
  RandomStream random(1);
  toy.runner.noise = [&](int) { return std::exp(0.05 * random.normal()) - 1; };
  const auto result = must(toy.run());
  EXPECT_EQ(result.record.verdict, Verdict::unresolved);
  EXPECT_EQ(result.record.trust, Trust::b);
  EXPECT_TRUE(result.record.winner.traits.is_default);
}

TEST(SearchTest, TheLaunchPathsOfTheWinnerAreRecorded) {
  LaunchTimes paths{{{KernelPath::stream, 3, 5}, {KernelPath::graph, 1, 4}}, KernelPath::graph};
  ToySession toy;
  toy.runner.time_us = bowl_us;
  std::vector<std::string> asked;
  toy.runner.paths = [&](const Candidate& candidate) {
    asked.push_back(candidate.id());
    return paths;
  };
  const auto result = must(toy.run());
  EXPECT_EQ(result.record.launch_paths, paths);
  const RankedConfiguration& winner = result.record.winner;
  EXPECT_EQ(asked, std::vector{winner.choice.id()});
}

TEST(SearchTest, ARunnerThatLaunchesNothingHasNoLaunchPaths) {
  ToySession toy;
  toy.runner.time_us = bowl_us;
  const auto result = must(toy.run());
  EXPECT_EQ(result.record.launch_paths, LaunchTimes{});
  EXPECT_TRUE(result.notes.empty());
}

TEST(SearchTest, LaunchPathsThatFailCostTheRecordNothingElse) {
  ToySession toy;
  toy.runner.time_us = bowl_us;
  toy.runner.paths = [](const Candidate&) { return Error{ErrorCode::device, "refused"}; };
  const auto result = must(toy.run());
  EXPECT_EQ(result.record.launch_paths, LaunchTimes{});
  EXPECT_EQ(result.notes,
            std::vector<std::string>{"the launch paths could not be measured: refused"});
}

TEST(SearchTest, AWinnerThatLaunchesForTooLongIsLabelled) {
  ToySession toy;
  toy.runner.time_us = bowl_us;
  toy.runner.gap_us = 1;
  const auto result = must(toy.run());
  ASSERT_EQ(result.notes.size(), 1U);
  EXPECT_THAT(result.notes[0], HasSubstr("time between kernels"));
}

TEST(SearchTest, WhileCompilesRunTheBestAreSampledAgain) {
  ToySession toy;
  toy.compiler->seconds = 0.02;
  toy.runner.time_us = [](const Candidate& c) {
    return c.kernel_template->name == "toy/other" ? 3.0 : 10.0;
  };
  const auto result = must(toy.run());
  EXPECT_GT(result.shares.filler_seconds, 0);
  EXPECT_GT(result.shares.device.busy_seconds, 0);
  EXPECT_NEAR(result.shares.device.idle_seconds(), 0, 1e-9);
  EXPECT_GT(toy.runner.samples["toy/other A=1"], 2 + 4 + 16 + 16)
      << "the default, more often than screening, rungs and finals take";
}

TEST(SearchTest, WhatTheDeviceWaitsForIsIdleTime) {
  ToySession toy;
  toy.runner.prepare_seconds = 0.004;
  const auto result = must(toy.run());
  const DeviceUse& device = result.shares.device;
  EXPECT_GT(toy.runner.prepared, 50) << "some of 50 are loaded again for the race";
  EXPECT_NEAR(device.idle_seconds(), 0.004 * toy.runner.prepared, 1e-9);
  EXPECT_NEAR(device.longest_idle_seconds, 0.004, 1e-9) << "a sample follows each";
  EXPECT_NEAR(device.seconds(), toy.runner.clock_seconds, 1e-9);
  EXPECT_EQ(result.record.idle_seconds, device.idle_seconds());
  EXPECT_EQ(result.record.longest_idle_ms, 1000 * device.longest_idle_seconds);
}

TEST(SearchTest, NothingThatWasMeasuredTwiceOnlyCanWin) {
  ToySession toy;
  toy.options.budget.seconds = 0;
  const auto result = must(toy.run());
  EXPECT_GE(result.record.winner.measurement.samples_us.size(),
            static_cast<std::size_t>(kMinRounds));
  EXPECT_EQ(result.record.search.stop_reason, "budget");
}

TEST(SearchTest, EqualSessionsChooseEqually) {
  std::string first;
  for (int i = 0; i < 3; ++i) {
    ToySession toy;
    toy.runner.noise = steady_noise;
    const auto result = must(toy.run());
    const std::string id = result.record.winner.choice.id();
    if (i == 0) first = id;
    EXPECT_EQ(id, first);
  }
}

}  // namespace
}  // namespace kernwright
