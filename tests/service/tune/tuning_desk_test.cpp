#include "service/tune/tuning_desk.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cache/stores/failure_store.h"
#include "compile/render.h"
#include "support/files.h"
#include "tests/results.h"
#include "tests/service/site_fixture.h"
#include "tests/support/faulty_files.h"
#include "tuner/candidates/candidate_list.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

/// Returns how many searches a log has.
std::ptrdiff_t sessions(const std::filesystem::path& log) {
  std::ifstream lines(log);
  return std::count_if(std::istream_iterator<std::string>(lines), {},
                       [](const std::string& word) { return word.starts_with("{\"session\""); });
}

class TuningDeskTest : public SiteFixture {
 protected:
  std::unique_ptr<TuningDesk> desk() {
    const Surroundings surroundings = fake_surroundings(world_);
    return std::make_unique<TuningDesk>(
        site_, *builder_, answers_,
        TuningDesk::Options{.in_process = true,
                            .open_device = surroundings.open_device,
                            .make_data_ops = surroundings.make_data_ops});
  }
  static TuningOptions few_trials() { return {.budget = {.trials = 4}}; }
  std::size_t stored() const { return answers_.look_up(problem_).records.size(); }

  const std::unique_ptr<Builder> builder_ = builder();
  const AnswerFinder answers_{site_, *builder_};
  const BoundProblem problem_ = *site_.bind(vector_add(64, DType::bf16));
};

TEST_F(TuningDeskTest, WhatWasTunedIsInTheCacheWithItsBitsAndItsLog) {
  const TuningResult tuned = must(desk()->tune(problem_, few_trials()));
  EXPECT_EQ(tuned.unstored, "");
  const Answers found = answers_.look_up(problem_);
  ASSERT_EQ(found.records.size(), 1U);
  EXPECT_EQ(found.records[0].match, Match::exact);
  EXPECT_EQ(found.records[0].head.winner.choice, tuned.record.winner.choice);
  const Lookup<CompiledKernel> bits = site_.cache.artifact(tuned.record.winner.artifact);
  ASSERT_TRUE(bits);
  EXPECT_EQ(bits.value->bits, tuned.kernel->bits);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_ / "trials/vector_add"), {}), 1);
  const Lookup<TrialTable> trials = read_trials(found.records[0].file, site_.key(problem_));
  ASSERT_TRUE(trials) << trials.detail;
  ASSERT_EQ(trials.value->rows.size(), tuned.trials.size());
  EXPECT_EQ(trials.value->rows[0].choice, tuned.trials[0].choice);
  EXPECT_GT(trials.value->wall_seconds, trials.value->finals_seconds);
}

TEST_F(TuningDeskTest, WhatATuningBeginsWithIsCompiledAhead) {
  const auto candidates = must(enumerate_candidates(*site_.catalog, problem_, site_.profile));
  const Candidate& first = candidates.candidates[candidates.default_index];
  const std::string digest =
      *builder_->pool().digest(render(first, *site_.catalog, site_.profile.sm_arch));
  const std::unique_ptr<TuningDesk> ahead = desk();
  ahead->compile_ahead({problem_});
  while (!site_.cache.artifact(digest)) std::this_thread::yield();
  EXPECT_TRUE(ahead->tune(problem_, few_trials()));
}

TEST_F(TuningDeskTest, NothingIsCompiledAheadWhereNothingCanBeTuned) {
  const std::unique_ptr<TuningDesk> sealed = desk();
  builder_->seal().close(SealMode::error);
  sealed->compile_ahead({problem_});
  site_.has_device = false;
  desk()->compile_ahead({problem_});
  EXPECT_EQ(world_.compiles, 0);
}

TEST_F(TuningDeskTest, APredictionHasNoTrials) {
  ASSERT_TRUE(desk()->predict(problem_, {.trials = 1}));
  const Answers found = answers_.look_up(problem_);
  ASSERT_EQ(found.records.size(), 1U);
  EXPECT_EQ(read_trials(found.records[0].file, site_.key(problem_)).reason, MissReason::absent);
}

/// A product, and the candidates whose bits may be there before it is asked for.
class KeptBitsTest : public TuningDeskTest {
 protected:
  double times(std::size_t i) const { return list_.predicted_us[i] / list_.predicted_us[first_]; }
  /// Builds the fastest candidate that takes at least so many times as long as the first one and
  /// has other bits.
  std::size_t build(double least) {
    std::size_t found = first_;
    for (std::size_t i = 0; i < list_.candidates.size(); ++i) {
      if (list_.group_of[i] == list_.group_of[first_] || times(i) < least) continue;
      if (found == first_ || times(i) < times(found)) found = i;
    }
    EXPECT_TRUE(builder_->build(list_.candidates[found]));
    return found;
  }
  Choice predicted() { return desk()->predict(product_, {.trials = 1})->record.winner.choice; }

  const BoundProblem product_ = *site_.bind(matmul({600, 3072, 1024}, DType::bf16));
  const CandidateList list_ = *enumerate_candidates(*site_.catalog, product_, site_.profile);
  const std::size_t first_ = predicted_choice(list_.predicted_us, list_.default_index);
};

TEST_F(KeptBitsTest, DecideAmongEqualPredictions) {
  const std::size_t near = build(1);
  ASSERT_LT(times(near), 1.03);
  EXPECT_EQ(predicted(), list_.candidates[near].choice());
}

TEST_F(KeptBitsTest, DoNotCountWhereTheyAreSlower) {
  build(1.04);
  EXPECT_EQ(predicted(), list_.candidates[first_].choice());
}

TEST_F(TuningDeskTest, TheCacheKeepsTheLogOfTheLastSearchAlone) {
  const std::filesystem::path log = site_.cache.log(site_.key(problem_));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(desk()->tune(problem_, few_trials()));
    EXPECT_EQ(sessions(log), 1) << i;
  }
}

TEST_F(TuningDeskTest, ALogWithANameOfItsOwnIsAppendedTo) {
  TuningOptions options = few_trials();
  options.trial_log = dir_ / "mine.jsonl";
  for (int i = 1; i <= 2; ++i) {
    ASSERT_TRUE(desk()->tune(problem_, options));
    EXPECT_EQ(sessions(options.trial_log), i);
  }
  EXPECT_FALSE(std::filesystem::exists(site_.cache.logs()));
}

TEST_F(TuningDeskTest, TheWinnerSoFarIsTheIncumbent) {
  TuningRecord known = desk()->tune(problem_, few_trials())->record;
  known.trust = Trust::a;
  ASSERT_TRUE(site_.cache.put_record(known));
  const TuningResult again = must(desk()->tune(problem_, few_trials()));
  std::vector<RankedConfiguration> finalists = again.record.runners_up;
  finalists.push_back(again.record.winner);
  const auto incumbent = std::ranges::find_if(
      finalists, [](const RankedConfiguration& one) { return one.traits.is_incumbent; });
  ASSERT_NE(incumbent, finalists.end());
  EXPECT_EQ(incumbent->choice, known.winner.choice);
}

TEST_F(TuningDeskTest, WhatIsBannedIsNeitherMeasuredNorPredicted) {
  const Choice first = desk()->predict(problem_, {.trials = 1})->record.winner.choice;
  ASSERT_TRUE(site_.cache.put_override(
      {.key = site_.key(problem_), .action = OverrideAction::ban, .choice = first}));
  const TuningResult predicted = must(desk()->predict(problem_, {.trials = 1}));
  EXPECT_NE(predicted.record.winner.choice, first);
  const TuningResult tuned = must(desk()->tune(problem_, few_trials()));
  for (const Trial& trial : tuned.trials) {
    EXPECT_TRUE(trial.choice != first || trial.outcome == Outcome::rejected);
  }
}

TEST_F(TuningDeskTest, WithoutAGpuNothingIsTunedButPredictionsAreMade) {
  site_.has_device = false;
  EXPECT_THAT(desk()->tune(problem_, few_trials()),
              Fails(ErrorCode::unavailable, HasSubstr("for the sku h200")));
  const TuningResult predicted = must(desk()->predict(problem_, {.trials = 2}));
  EXPECT_EQ(predicted.record.grade, RecordGrade::predicted);
  EXPECT_EQ(stored(), 1U);
}

TEST_F(TuningDeskTest, WithoutAToolkitNothingIsMade) {
  world_.toolkit_missing = true;
  EXPECT_EQ(desk()->tune(problem_, few_trials()).error().code, ErrorCode::unavailable);
  EXPECT_EQ(desk()->predict(problem_, {.trials = 1}).error().code, ErrorCode::unavailable);
  EXPECT_EQ(stored(), 0U);
}

TEST_F(TuningDeskTest, WithoutAWorkerNothingIsTuned) {
  TuningDesk::Options options;
  options.worker = dir_ / "none";
  TuningDesk without(site_, *builder_, answers_, std::move(options));
  EXPECT_THAT(without.tune(problem_, few_trials()),
              Fails(ErrorCode::unavailable, HasSubstr((dir_ / "none").native())));
}

TEST_F(TuningDeskTest, ATuningThatIsStoppedKeepsNothing) {
  std::atomic<bool> stop{true};
  EXPECT_EQ(desk()->tune(problem_, few_trials(), &stop).error().code, ErrorCode::unavailable);
  stop = false;
  TuningOptions options = few_trials();
  options.progress = [&](const TuningProgress& now) { stop = now.measured >= 2; };
  EXPECT_THAT(desk()->tune(problem_, options, &stop),
              Fails(ErrorCode::unavailable, "tuning was stopped"));
  EXPECT_EQ(stored(), 0U);
}

TEST_F(TuningDeskTest, AGpuThatWasLostIsNotUsedAgainAndWhyIsKept) {
  world_.outcome = [](const ExecutionPlan& plan) {
    const bool candidate =
        !plan.launches.empty() && plan.launches[0].kernel == "vector_add_vectorized";
    return candidate ? Outcome::illegal_address : Outcome::ok;
  };
  const auto one = desk();
  EXPECT_EQ(one->tune(problem_, few_trials()).error().code, ErrorCode::device);
  EXPECT_THAT(one->tune(problem_, few_trials()),
              Fails(ErrorCode::device, "GPU 0 was lost to an earlier failure"));
  const RecordEnvironment now = answers_.environment();
  const auto kept =
      FailureStore(dir_.path())
          .active(problem_.text(),
                  {.sku = "h200",
                   .target = "sm_90",
                   .driver = now.driver,
                   .compiler = now.compiler,
                   .template_digest = {}},
                  [&](std::string_view name) { return answers_.template_digest(name); });
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_EQ(kept[0].outcome, Outcome::illegal_address);
}

TEST_F(TuningDeskTest, WhatCannotBeStoredIsReturnedAllTheSameAndSaid) {
  const FaultyFiles full(dir_.path().native(), FaultyFiles::Call::write, ENOSPC);
  const TuningResult predicted = must(desk()->predict(problem_, {.trials = 1}));
  EXPECT_NE(predicted.kernel, nullptr);
  EXPECT_THAT(predicted.unstored, HasSubstr("No space left"));
  ASSERT_FALSE(predicted.notes.empty());
  EXPECT_EQ(predicted.notes.back().rfind("artifact not stored: ", 0), 0U);
  EXPECT_TRUE(said("record not stored: "));
}

// A file is in the place of the artifacts' folder.
TEST_F(TuningDeskTest, ARecordWithoutItsBitsDoesNotCountAsStored) {
  ASSERT_TRUE(publish_file(dir_ / "v1/artifacts", ""));
  const TuningResult predicted = must(desk()->predict(problem_, {.trials = 1}));
  EXPECT_EQ(stored(), 1U);
  EXPECT_EQ(predicted.unstored, "the winner's artifact could not be written");
}

}  // namespace
}  // namespace kernwright
