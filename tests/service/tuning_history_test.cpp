#include "service/tuning_history.h"

#include <gtest/gtest.h>
#include <map>
#include <vector>

#include "model/catalog.h"
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
    trial.kernel_template = "vector_add/vectorized";
    trial.configuration = Configuration({{"THREADS", threads}});
    trial.outcome = outcome;
    return trial;
  }
  static GradedRecord record(std::int64_t threads, RecordGrade grade, Trust trust) {
    GradedRecord graded;
    graded.record.grade = grade;
    graded.record.trust = trust;
    graded.record.winner.kernel_template = "vector_add/vectorized";
    graded.record.winner.configuration = Configuration({{"THREADS", threads}});
    return graded;
  }
  TuningOptions options(const TuningHistory& from,
                        const std::vector<GradedRecord>& known = {}) const {
    TuningOptions options;
    from.add_to(options, **catalog_->operation("vector_add"), known);
    return options;
  }

  ScopedTempDir dir_;
  TieredCache cache_{dir_.path(), {}};
  std::shared_ptr<const Catalog> catalog_ = *Catalog::load({});
};

TEST_F(TuningHistoryTest, AnEmptyCacheKnowsNothing) {
  const TuningOptions found = options(history());
  EXPECT_FALSE(found.incumbent);
  EXPECT_TRUE(found.seeds.empty());
  EXPECT_TRUE(found.failures.empty());
}

TEST_F(TuningHistoryTest, TheIncumbentIsTheBestMeasuredRecordThatIsNotProvisional) {
  const TuningOptions found = options(
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
  const TuningOptions found = options(history());
  ASSERT_EQ(found.failures.size(), 1U);
  EXPECT_EQ(found.failures[0].id, "vector_add/vectorized THREADS=64");
  EXPECT_EQ(found.failures[0].outcome, Outcome::wrong_result);
  EXPECT_TRUE(options(history("590.2")).failures.empty());
}

}  // namespace
}  // namespace kernwright
