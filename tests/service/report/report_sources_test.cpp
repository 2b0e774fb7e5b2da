#include "service/report/report_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>

#include "cache/layers/tiered_cache.h"
#include "support/files.h"
#include "tests/cache/samples.h"
#include "tests/results.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ReportSourcesTest : public ::testing::Test {
 protected:
  fs::path put(TuningRecord record, const TrialTable* trials = nullptr) {
    return must(cache_.put_record(record, trials));
  }
  Result<ReportSources> read(std::vector<fs::path> paths, std::string sku = {}) const {
    return read_report_sources(
        {.paths = std::move(paths), .cache = cache_.root(), .sku = std::move(sku)}, *catalog_);
  }

  ScopedTempDir dir_;
  TieredCache cache_{dir_ / "cache"};
  std::shared_ptr<const Catalog> catalog_ = Catalog::load({}).value();
  TrialTable trials_{.finals_seconds = 1, .wall_seconds = 2, .rows = {{.us = 5}}};
};

TEST_F(ReportSourcesTest, ACacheGivesTheBestRecordOfEachKey) {
  TuningRecord record = sample_record(1);
  record.trust = Trust::b;
  record.created = "2026-11-20T00:00:00Z";
  put(record, &trials_);
  record.created = "2026-11-21T00:00:00Z";
  put(record, &trials_);
  record.trust = Trust::c;
  record.created = "2026-11-22T00:00:00Z";
  put(record);
  record.grade = RecordGrade::predicted;
  record.trust = Trust::a;
  put(record);
  put(sample_record(2));
  for (const auto& paths : {std::vector<fs::path>{}, {cache_.root()}}) {
    const ReportSources sources = must(read(paths));
    ASSERT_EQ(sources.records.size(), 2U);
    const ReportedRecord& best = sources.records[0];
    EXPECT_EQ(best.record.created, "2026-11-21T00:00:00Z");
    EXPECT_EQ(best.trials, trials_);
    EXPECT_FALSE(sources.records[1].trials);
    EXPECT_THAT(sources.records[1].no_trials, HasSubstr("were not kept"));
  }
}

TEST_F(ReportSourcesTest, ARecordIsGivenByItsFile) {
  put(sample_record(1));
  const fs::path file = put(sample_record(2), &trials_);
  const ReportSources sources = must(read({file}));
  ASSERT_EQ(sources.records.size(), 1U);
  EXPECT_EQ(sources.records[0].record.key, sample_key(2));
  EXPECT_TRUE(sources.records[0].trials);
}

TEST_F(ReportSourcesTest, AWorklistGivesItsProblemsAndNamesThoseWithoutARecord) {
  put(sample_record(1));
  put(sample_record(3));
  const fs::path list = dir_ / "list.json";
  ASSERT_TRUE(publish_file(list, R"({"problems": ["matmul m=3 n=6144 k=4096 dtype=bf16",
    "matmul m=3 k=4096 n=6144 dtype=bf16", "matmul m=2 n=6144 k=4096 dtype=bf16"]})"));
  const ReportSources sources = must(read({list}));
  ASSERT_EQ(sources.records.size(), 1U);
  EXPECT_EQ(sources.records[0].record.key, sample_key(3));
  ASSERT_EQ(sources.missing.size(), 1U);
  EXPECT_EQ(sources.missing[0].problem, "matmul m=2 n=6144 k=4096 dtype=bf16");
  const ReportSources other = must(read({list}, "h100_sxm"));
  EXPECT_TRUE(other.records.empty());
  EXPECT_EQ(other.missing.size(), 2U);
}

TEST_F(ReportSourcesTest, WhatCannotBeReadIsADefectAndTheRestIsThere) {
  put(sample_record(1), &trials_);
  const fs::path torn = put(sample_record(2));
  ASSERT_TRUE(publish_file(torn, "torn"));
  const ReportSources sources = must(read({}));
  EXPECT_EQ(sources.records.size(), 1U);
  ASSERT_EQ(sources.defects.size(), 1U);
  EXPECT_THAT(sources.defects[0], HasSubstr(torn.native()));
}

TEST_F(ReportSourcesTest, TrialsThatCannotBeReadCostTheirPartAlone) {
  const fs::path file = put(sample_record(1), &trials_);
  ASSERT_TRUE(publish_file(trials_file(file), "torn"));
  const ReportSources sources = must(read({}));
  ASSERT_EQ(sources.records.size(), 1U);
  EXPECT_FALSE(sources.records[0].trials);
  EXPECT_THAT(sources.records[0].no_trials, HasSubstr("cannot be read"));
}

TEST_F(ReportSourcesTest, WhatIsNoneOfTheThreeIsAnErrorThatNamesIt) {
  EXPECT_THAT(read({dir_ / "none"}), Fails(ErrorCode::not_found, HasSubstr("none")));
  const fs::path text = dir_ / "text";
  ASSERT_TRUE(publish_file(text, "no JSON"));
  EXPECT_THAT(read({text}), Fails(HasSubstr("text:1")));
}

}  // namespace
}  // namespace kernwright
