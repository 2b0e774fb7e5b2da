#include "tuner/session/tuning_session.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>

#include "cache/records/record_view.h"
#include "compile/render.h"
#include "tests/results.h"
#include "tests/tuner/toy.h"
#include "tuner/cost/cost_model.h"
#include "tuner/session/predict_record.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

bool is(const Candidate& candidate, int a, int b) {
  return candidate.kernel_template->name == "toy/plain" && candidate.configuration.at("A") == a &&
         candidate.configuration.at("B") == b;
}

TEST(TuningSessionTest, ExhaustiveFindsTheBestOfTheLandscape) {
  ToySession toy;
  toy.runner.time_us = bowl_us;
  const auto result = must(toy.run());
  const TuningRecord& record = result.record;
  EXPECT_EQ(record.winner.choice.kernel_template, "toy/plain");
  EXPECT_EQ(record.winner.choice.configuration.text(), "A=5 B=3 R=2");
  EXPECT_EQ(record.winner.measurement.median_us(), 3);
  EXPECT_EQ(record.candidates, 50);
  EXPECT_EQ(record.measured, 50);
  EXPECT_EQ(result.trials.size(), 50U);
  ASSERT_TRUE(record.baseline.has_value());
  EXPECT_EQ(record.runners_up.size(), 7U);
  for (std::size_t i = 1; i < record.runners_up.size(); ++i) {
    EXPECT_LE(record.runners_up[i - 1].measurement.median_us(),
              record.runners_up[i].measurement.median_us());
  }
  EXPECT_TRUE(toy.cache.artifact(record.winner.artifact));
  EXPECT_TRUE(toy.cache.artifact(record.baseline->artifact));
}

TEST(TuningSessionTest, OnlyAnExhaustiveSearchBreaksAHabit) {
  for (const auto& [strategy, count] : {std::pair{"exhaustive", 50}, {"random", 42}}) {
    ToySession toy;
    toy.options.strategy = strategy;
    TuningInput input = toy.input();
    input.problem = toy.catalog.problem(100);
    TuningSession session(input);
    ASSERT_TRUE(session.compile_first_choices());
    const auto result = session.run(toy.runner, toy.options);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result.value().record.candidates, count) << strategy;
  }
}

TEST(TuningSessionTest, RankedFindsTheBestFirstWhereTheModelIsRight) {
  ToySession toy;
  toy.options.strategy = "ranked";
  toy.options.budget.trials = 8;
  toy.runner.time_us = [&](const Candidate& c) { return predict_us(c, toy.profile); };
  const auto list = must(enumerate_candidates(*toy.catalog, toy.catalog.problem(), toy.profile));
  const double best = *std::min_element(list.predicted_us.begin(), list.predicted_us.end());
  const auto result = must(toy.run());
  EXPECT_EQ(result.trials.size(), 8U);
  EXPECT_NEAR(result.record.winner.measurement.median_us(), best, 0.005 * best);
}

TEST(TuningSessionTest, TheDefaultIsTriedFirst) {
  ToySession toy;
  const auto result = must(toy.run());
  const auto list = enumerate_candidates(*toy.catalog, toy.catalog.problem(), toy.profile);
  EXPECT_EQ(result.trials.front().choice.id(),
            list.value().candidates[list.value().default_index].id());
}

TEST(TuningSessionTest, OpeningCountsAsAPartOfTheBudget) {
  for (const double opening_seconds : {2.0, 400.0}) {
    ToySession toy;
    toy.options.budget = {.seconds = 100, .trials = 1, .opening_seconds = opening_seconds};
    const auto result = must(toy.run());
    const double wall_seconds = result.shares.wall_seconds;
    EXPECT_GE(wall_seconds, std::min(opening_seconds, 25.0));
    EXPECT_LT(wall_seconds, std::min(opening_seconds, 25.0) + 10);
    EXPECT_EQ(result.record.wall_seconds, wall_seconds);
  }
}

TEST(TuningSessionTest, FailuresCostOnlyTheirCandidates) {
  ToySession toy;
  toy.runner.time_us = bowl_us;
  toy.runner.outcome = [](const Candidate& c) {
    if (is(c, 5, 3)) return Outcome::wrong_result;
    if (is(c, 5, 2)) return Outcome::illegal_address;
    if (is(c, 4, 3)) return Outcome::launch_failed;
    return Outcome::ok;
  };
  toy.compiler->behave = [](const CompileRequest&,
                            CompiledKernel kernel) -> Result<CompiledKernel> {
    const int a = config_value(kernel.bits, "A");
    const int b = config_value(kernel.bits, "B");
    if (a == 6 && b == 3) return Error{ErrorCode::compile, "kernel.cu:1: expected ;"};
    if (a == 5 && b == 4) kernel.entries.front().resources.spill_store_bytes = 16;
    return kernel;
  };
  toy.options.trial_log = toy.folder / "log/trials.jsonl";
  const auto result = must(toy.run());
  std::map<Outcome, int> counts;
  for (const Trial& trial : result.trials) {
    ++counts[trial.outcome];
    EXPECT_EQ(trial.outcome == Outcome::ok, trial.detail.empty()) << trial.choice.id();
  }
  EXPECT_EQ(counts[Outcome::wrong_result], 2);
  EXPECT_EQ(counts[Outcome::illegal_address], 2);
  EXPECT_EQ(counts[Outcome::launch_failed], 2);
  EXPECT_EQ(counts[Outcome::compile_failed], 2);
  EXPECT_EQ(counts[Outcome::spilled], 2);
  EXPECT_EQ(counts[Outcome::ok], 40);
  EXPECT_EQ(result.record.winner.measurement.median_us(), 5);

  std::ifstream log(toy.options.trial_log);
  std::map<std::string, int> logged;
  int lines = 0;
  for (std::string line; std::getline(log, line); ++lines) {
    const auto json = nlohmann::json::parse(line);
    if (lines == 0) {
      EXPECT_EQ(json["session"]["problem"], toy.catalog.problem().text());
      continue;
    }
    ++logged[json["outcome"]];
    EXPECT_TRUE(json["configuration"].is_object());
    if (json["outcome"] == "ok") {
      EXPECT_FALSE(json["samples_us"].empty());
    }
  }
  EXPECT_EQ(logged["spilled"], 2);
  EXPECT_EQ(logged["wrong_result"], 2);
  EXPECT_EQ(logged["illegal_address"], 2);
  EXPECT_EQ(logged["compile_failed"], 2);
  EXPECT_EQ(logged["launch_failed"], 2);
  EXPECT_EQ(logged["ok"], 40 + 8);  // the finalists, the default among them, once more
}

TEST(TuningSessionTest, SpillsWithinTheAllowanceAreNoFailure) {
  ToySession toy;
  toy.compiler->behave = [](const CompileRequest&, CompiledKernel kernel) {
    kernel.entries.front().resources.spill_load_bytes = 8;
    return Result<CompiledKernel>(std::move(kernel));
  };
  const auto result = must(toy.run());
  EXPECT_EQ(result.record.measured, 50);
}

TEST(TuningSessionTest, WhatSpillsTooMuchIsToldHowMuchItMay) {
  ToySession toy;
  toy.compiler->behave = [](const CompileRequest& request, CompiledKernel kernel) {
    const bool other = request.source == "other";
    if (config_value(kernel.bits, "A") == 2) {
      kernel.entries.front().resources.spill_store_bytes = other ? 260 : 9;
    } else if (other) {
      kernel.entries.front().resources.spill_store_bytes = 256;
    }
    return Result<CompiledKernel>(std::move(kernel));
  };
  const auto result = must(toy.run());
  std::map<std::string, std::string> details;
  for (const Trial& trial : result.trials) {
    if (trial.outcome == Outcome::spilled) details[trial.choice.id()] = trial.detail;
  }
  EXPECT_EQ(details.size(), 9U);
  EXPECT_EQ(details["toy/other A=2"], "spills 260 bytes, more than the limit of 256");
  EXPECT_EQ(details["toy/plain A=2 B=1 R=1"], "spills 9 bytes, the manifest allows 8");
}

TEST(TuningSessionTest, WarningsStayInTheDetail) {
  ToySession toy;
  toy.compiler->behave = [](const CompileRequest&, CompiledKernel kernel) {
    kernel.warnings.push_back("wgmma serialised");
    return Result<CompiledKernel>(std::move(kernel));
  };
  const auto result = must(toy.run());
  EXPECT_EQ(result.trials.front().outcome, Outcome::ok);
  EXPECT_EQ(result.trials.front().detail, "wgmma serialised");
}

TEST(TuningSessionTest, WhereNothingPassesTheErrorSaysWhy) {
  ToySession toy;
  toy.runner.outcome = [](const Candidate&) { return Outcome::wrong_result; };
  EXPECT_THAT(toy.run(), Fails(::testing::AllOf(HasSubstr("none of 50 candidates"),
                                                HasSubstr("50 ended as wrong_result"))));
}

TEST(TuningSessionTest, ALostDeviceEndsTheSessionAndIsBlamedOnItsCandidate) {
  ToySession toy;
  toy.options.trial_log = toy.folder / "trials.jsonl";
  toy.runner.outcome = [](const Candidate& c) {
    return is(c, 3, 1) ? Outcome::device_lost : Outcome::ok;
  };
  EXPECT_THAT(toy.run(), Fails(ErrorCode::device, HasSubstr("toy/plain A=3 B=1")));
  const auto log = must(read_file(toy.options.trial_log));
  EXPECT_THAT(log, HasSubstr("\"device_lost\""));
}

TEST(TuningSessionTest, TheBudgetOfTrialsHolds) {
  ToySession toy;
  toy.options.budget.trials = 7;
  const auto result = must(toy.run());
  EXPECT_EQ(result.trials.size(), 7U);
}

TEST(TuningSessionTest, TheBudgetOfSecondsHoldsFinalsIncluded) {
  for (const double seconds : {0.5, 1.0, 2.0}) {
    ToySession toy;
    toy.runner.prepare_seconds = 0.02;
    toy.runner.sample_seconds = 0.0015;
    toy.options.budget.seconds = seconds;
    const auto result = must(toy.run());
    const TimeShares& shares = result.shares;
    EXPECT_LE(shares.wall_seconds, 1.15 * seconds + 0.3);
    EXPECT_GT(result.trials.size(), 1U);
    EXPECT_EQ(result.record.winner.measurement.samples_us.size() > 3, true);
  }
}

TEST(TuningSessionTest, EvenWithNoTimeTheDefaultAndTheFirstChoiceAreMeasured) {
  ToySession toy;
  toy.options.budget.seconds = 0;
  const auto result = must(toy.run());
  EXPECT_EQ(result.trials.size(), 2U);
  EXPECT_EQ(result.record.winner.choice.configuration,
            result.record.baseline->choice.configuration);
}

TEST(TuningSessionTest, ATieKeepsTheDefault) {
  ToySession toy;
  toy.runner.time_us = [](const Candidate& c) { return is(c, 6, 4) ? 9.995 : 10.0; };
  toy.runner.noise = [](int i) { return 0.01 * std::sin(i * 2.399); };
  const auto result = must(toy.run());
  EXPECT_EQ("toy/other A=1", result.record.winner.choice.id());
  EXPECT_EQ(result.record.winner.choice.configuration,
            result.record.baseline->choice.configuration);
}

TEST(TuningSessionTest, CandidatesOfOneCompileAreCompiledOnce) {
  ToySession toy;
  const auto result = must(toy.run());
  EXPECT_EQ(toy.compiler->compiles, 6 * 4 + 2);
}

TEST(TuningSessionTest, StoredArtifactsAreNotCompiledAgain) {
  ToySession toy;
  toy.options.finalists = 50;
  ASSERT_TRUE(toy.run());
  toy.compiler->compiles = 0;
  ASSERT_TRUE(toy.run());
  EXPECT_EQ(toy.compiler->compiles, 0);
}

TEST(TuningSessionTest, ProgressIsReportedAfterEveryTrial) {
  ToySession toy;
  toy.runner.time_us = bowl_us;
  std::vector<TuningProgress> seen;
  toy.options.progress = [&](const TuningProgress& progress) { seen.push_back(progress); };
  ASSERT_TRUE(toy.run());
  // It is told at other moments too, before the first trial and the finals among them.
  std::set<int> measured;
  for (const TuningProgress& progress : seen) measured.insert(static_cast<int>(progress.measured));
  for (int trial = 1; trial <= 50; ++trial) EXPECT_TRUE(measured.contains(trial)) << trial;
  EXPECT_EQ(seen.back().candidates, 50);
  EXPECT_EQ(seen.back().measured, 50);
  EXPECT_EQ(seen.back().best_us, 3);
  EXPECT_EQ(seen.back().best, "toy/plain A=5 B=3 R=2");
}

// A compile does not end before the first sample is taken, and that sample does not end before the
// compile does: were one to wait for the other, both would wait until the time is up.
TEST(TuningSessionTest, CompilingAndMeasuringOverlap) {
  ToySession toy;
  std::promise<void> measuring, compiled;
  std::future<void> until_measuring = measuring.get_future(),
                    until_compiled = compiled.get_future();
  std::atomic<bool> meets{false};
  toy.compiler->seconds = 0.001;
  toy.compiler->behave = [&](const CompileRequest& request,
                             CompiledKernel kernel) -> Result<CompiledKernel> {
    // Not of toy/other, whose default is the first to be measured.
    if (request.source == "plain" && !meets.exchange(true)) {
      EXPECT_EQ(until_measuring.wait_for(std::chrono::minutes(15)), std::future_status::ready);
      compiled.set_value();
    }
    return kernel;
  };
  bool first = true;
  toy.runner.time_us = [&](const Candidate& candidate) {
    if (std::exchange(first, false)) {
      measuring.set_value();
      EXPECT_EQ(until_compiled.wait_for(std::chrono::minutes(15)), std::future_status::ready);
    }
    return bowl_us(candidate);
  };
  const auto result = must(toy.run());
  const TimeShares& shares = result.shares;
  EXPECT_NEAR(shares.compile_seconds, 26 * toy.compiler->seconds, 1e-6);
  EXPECT_NEAR(shares.wall_seconds,
              shares.setup_seconds + shares.settle_seconds + shares.measure_seconds +
                  shares.filler_seconds + shares.finals_seconds,
              1e-6);
}

TEST(CandidateListTest, GroupsShareACompile) {
  ToySession toy;
  const auto list = must(enumerate_candidates(*toy.catalog, toy.catalog.problem(), toy.profile));
  EXPECT_EQ(list.candidates.size(), 50U);
  EXPECT_EQ(std::set<int>(list.group_of.begin(), list.group_of.end()).size(), 26U);
  EXPECT_EQ(list.rejected, 0);
}

TEST(CandidateListTest, WhereNoTemplateAppliesTheErrorHasEveryReason) {
  ToySession toy;
  toy.profile.sm_arch = 70;
  EXPECT_THAT(enumerate_candidates(*toy.catalog, toy.catalog.problem(), toy.profile),
              Fails(ErrorCode::not_found,
                    ::testing::AllOf(HasSubstr("toy/plain: "), HasSubstr("toy/other: "))));
}

TEST(TuningSessionTest, TheDefaultIsCompiledBeforeTheRunnerIsThere) {
  std::mutex mutex;  // outlives the compiles, which the toy's pool waits for
  std::set<Digest> compiled;
  ToySession toy;
  const BoundProblem problem = toy.catalog.problem();
  TuningSession session(toy.input());
  toy.compiler->behave = [&](const CompileRequest& request, CompiledKernel kernel) {
    const std::lock_guard lock(mutex);
    compiled.insert(request.digest(""));
    return Result<CompiledKernel>(std::move(kernel));
  };
  const CandidateList list = enumerate_candidates(*toy.catalog, problem, toy.profile).value();
  const Candidate& candidate = list.candidates[list.default_index];
  const Digest expected = render(candidate, *toy.catalog, toy.profile.sm_arch).digest("");
  const auto is_compiled = [&] {
    const std::lock_guard lock(mutex);
    return compiled.contains(expected);
  };
  ASSERT_TRUE(session.compile_first_choices());
  while (!is_compiled()) std::this_thread::yield();  // if it never is, the test ends late
}

TEST(PredictRecordTest, TakesTheBestPredictedThatCompiles) {
  ToySession toy;
  toy.compiler->behave = [](const CompileRequest& request,
                            CompiledKernel kernel) -> Result<CompiledKernel> {
    if (request.source == "plain" && config_value(kernel.bits, "A") < 4) {
      kernel.entries.front().resources.spill_store_bytes = 100;
    }
    return kernel;
  };
  const auto result = must(predict_record(toy.input(), {.trials = 24}));
  const TuningRecord& record = result.record;
  EXPECT_EQ(record.grade, RecordGrade::predicted);
  EXPECT_EQ(record.measured, 0);
  EXPECT_EQ(result.trials.size(), 24U);
  EXPECT_TRUE(toy.cache.artifact(record.winner.artifact));
  if (record.winner.choice.kernel_template == "toy/plain") {
    EXPECT_GE(record.winner.choice.configuration.at("A"), 4);
  }
}

TEST(PredictRecordTest, ACountOfOneGoesOnUntilOneCompiles) {
  ToySession toy;
  toy.compiler->behave = [count = std::make_shared<std::atomic<int>>(0)](
                             const CompileRequest&,
                             CompiledKernel kernel) -> Result<CompiledKernel> {
    if (++*count < 4) return Error{ErrorCode::compile, "no"};
    return kernel;
  };
  const auto result = must(predict_record(toy.input(), {.trials = 1}));
  EXPECT_EQ(result.trials.size(), 4U);
}

TEST(PredictRecordTest, WhenItsSecondsAreOverTheWinnerIsEnough) {
  ToySession toy;
  const auto result = must(predict_record(toy.input(), {.seconds = 0, .trials = 24}));
  EXPECT_GE(result.trials.size(), 1U);
  EXPECT_LE(result.trials.size(), static_cast<std::size_t>(toy.pool.threads()))
      << "what was under way with it";
}

TEST(PredictRecordTest, TheDefaultIsKeptWhereNobodyIsClearlyFasterAndItSaysSo) {
  const auto catalog = Catalog::load({}).value();
  const DeviceProfile profile = find_profile("h200").value();
  ToySession toy;
  int kept = 0;
  for (const int m : {1024, 2048, 4096, 8192}) {
    const BoundProblem problem =
        catalog->bind(Problem::parse(concat("matmul m=", m, " n=6144 k=4096 dtype=bf16")).value())
            .value();
    const auto result = must(predict_record({.catalog = *catalog,
                                             .problem = problem,
                                             .profile = profile,
                                             .pool = toy.pool,
                                             .key = {problem.text(), "sm_90", "h200", {}},
                                             .environment = {}},
                                            {.trials = 5}));
    const TuningRecord& record = result.record;
    ASSERT_EQ(record.runners_up.size(), 4U);
    for (std::size_t i = 1; i < record.runners_up.size(); ++i) {
      EXPECT_LE(record.runners_up[i - 1].predicted_us, record.runners_up[i].predicted_us);
    }
    const double fastest_us = record.runners_up.front().predicted_us;
    EXPECT_EQ(default_kept(record), record.winner.predicted_us > fastest_us);
    EXPECT_LE(record.winner.predicted_us, (1 + kModelDoubt) * fastest_us);
    EXPECT_TRUE(!default_kept(record) || record.winner.traits.is_default);
    kept += default_kept(record) ? 1 : 0;
  }
  EXPECT_GT(kept, 0);
}

TEST(PredictRecordTest, WithoutACompilerThereIsNoRecord) {
  ToySession toy;
  toy.compiler->behave = [](const CompileRequest&,
                            const CompiledKernel&) -> Result<CompiledKernel> {
    return Error{ErrorCode::unavailable, "no toolkit"};
  };
  EXPECT_THAT(predict_record(toy.input(), {.trials = 24}), Fails(ErrorCode::unavailable));
}

}  // namespace
}  // namespace kernwright
