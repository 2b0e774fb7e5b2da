#include "service/tune/tuning_history.h"

#include <gtest/gtest.h>
#include <map>
#include <vector>

#include "model/catalog/catalog.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

class TuningHistoryTest : public ::testing::Test {
 protected:
  TuningHistory history(const std::string& driver = "580.1") const {
    return {
        cache_,
        {.problem = "vector_add n=4096 dtype=bf16", .target = "sm_90", .sku = "h200", .policy = {}},
        {.template_digest = {}, .compiler = "fake 1.0", .driver = driver, .kernwright = "0"},
        [](std::string_view name) { return "digest of " + std::string(name); }};
  }
  static Trial trial(std::int64_t threads, Outcome outcome) {
    Trial trial;
    trial.choice.kernel_template = "vector_add/vectorized";
    trial.choice.configuration = Configuration({{"THREADS", threads}});
    trial.outcome = outcome;
    return trial;
  }
  static GradedRecord record(std::int64_t threads, RecordGrade grade, Trust trust) {
    GradedRecord graded;
    graded.head.grade = grade;
    graded.head.trust = trust;
    graded.match = Match::exact;
    graded.head.winner.choice.kernel_template = "vector_add/vectorized";
    graded.head.winner.choice.configuration = Configuration({{"THREADS", threads}});
    return graded;
  }
  EarlierTunings earlier(const TuningHistory& from, std::vector<GradedRecord> known = {},
                         Decisions decisions = {}) const {
    Answers answers;
    answers.records = std::move(known);
    answers.decisions = std::move(decisions);
    return from.of(*catalog_->bind(vector_add(4096, DType::bf16)), answers);
  }

  ScopedTempDir dir_;
  TieredCache cache_{dir_.path(), {}};
  std::shared_ptr<const Catalog> catalog_ = *Catalog::load({});
};

TEST_F(TuningHistoryTest, AnEmptyCacheKnowsNothing) {
  const EarlierTunings found = earlier(history());
  EXPECT_FALSE(found.incumbent);
  EXPECT_TRUE(found.warm_starts.empty());
  EXPECT_TRUE(found.failures.empty());
}

TEST_F(TuningHistoryTest, TheIncumbentIsTheBestMeasuredRecordThatIsNotProvisional) {
  const EarlierTunings found = earlier(
      history(),
      {record(32, RecordGrade::measured, Trust::c), record(64, RecordGrade::predicted, Trust::a),
       record(128, RecordGrade::measured, Trust::b), record(256, RecordGrade::measured, Trust::b)});
  ASSERT_TRUE(found.incumbent);
  EXPECT_EQ(found.incumbent->configuration.at("THREADS"), 128);
}

TEST_F(TuningHistoryTest, WhatFailedForGoodIsKnownWhileTheConditionsAreTheSame) {
  ASSERT_TRUE(history().keep(trial(64, Outcome::wrong_result)));
  ASSERT_TRUE(history().keep(trial(128, Outcome::spilled)));
  ASSERT_TRUE(history().keep(trial(256, Outcome::device_lost)));
  const EarlierTunings found = earlier(history());
  ASSERT_EQ(found.failures.size(), 1U);
  EXPECT_EQ(found.failures[0].id, "vector_add/vectorized THREADS=64");
  EXPECT_EQ(found.failures[0].outcome, Outcome::wrong_result);
  EXPECT_TRUE(earlier(history("590.2")).failures.empty());
}

TEST_F(TuningHistoryTest, WhatIsBannedIsNotTried) {
  Override ban;
  ban.action = OverrideAction::ban;
  ban.choice.kernel_template = "vector_add/vectorized";
  ban.choice.configuration = Configuration({{"THREADS", 64}});
  Decisions decisions;
  decisions.add(std::vector<Override>{ban});
  const EarlierTunings found = earlier(history(), {}, decisions);
  ASSERT_EQ(found.failures.size(), 1U);
  EXPECT_EQ(found.failures[0].id, "vector_add/vectorized THREADS=64");
  EXPECT_EQ(found.failures[0].outcome, Outcome::rejected);
}

TEST_F(TuningHistoryTest, TheRunnersUpOfAnotherEnvironmentAreMeasuredAgain) {
  TuningRecord record;
  record.key = {
      .problem = "vector_add n=4096 dtype=bf16", .target = "sm_90", .sku = "h200", .policy = {}};
  record.trust = Trust::a;
  record.winner.choice.kernel_template = "vector_add/vectorized";
  record.winner.choice.configuration = Configuration({{"THREADS", 128}});
  record.runners_up = {record.winner, record.winner};
  record.runners_up[0].choice.configuration = Configuration({{"THREADS", 256}});
  record.runners_up[1].choice.configuration = Configuration({{"THREADS", 512}});
  const Result<std::filesystem::path> file = cache_.put_record(record);
  ASSERT_TRUE(file);
  GradedRecord known{.head = head_of(record), .match = Match::recheck, .file = *file};
  const EarlierTunings again = earlier(history(), {known});
  ASSERT_EQ(again.warm_starts.size(), 2U);
  EXPECT_EQ(again.warm_starts[0].configuration.at("THREADS"), 256);
  EXPECT_EQ(again.warm_starts[1].configuration.at("THREADS"), 512);
  known.match = Match::exact;
  EXPECT_TRUE(earlier(history(), {known}).warm_starts.empty());
}

}  // namespace
}  // namespace kernwright
