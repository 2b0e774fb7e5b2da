#include "cache/layers/merge.h"

#include <cerrno>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache/layers/bundle.h"
#include "support/files.h"
#include "support/hash.h"
#include "tests/cache/samples.h"
#include "tests/results.h"
#include "tests/support/faulty_files.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

class MergeTest : public ::testing::Test {
 protected:
  /// A record whose winner takes `us`, with samples that spread by `spread`.
  static TuningRecord record(int m, int stages, double us, double spread = 0.1) {
    TuningRecord made = sample_record(m);
    made.winner.in_blocks = false;
    made.rounds = {};
    made.winner.choice.configuration = Configuration({{"STAGES", stages}});
    made.winner.measurement = {{us - spread, us, us + spread}};
    return made;
  }
  void SetUp() override { put_winner(into_); }
  /// The artifact of all records' winner.
  static void put_winner(const TieredCache& cache) {
    ASSERT_TRUE(cache.put_artifact(digest_of("winner").hex(), sample_kernel("winner")));
  }
  MergeReport merged() { return must(merge(into_, from_.root())); }

  ScopedTempDir dir_;
  TieredCache into_{dir_ / "into"};
  TieredCache from_{dir_ / "from"};
};

TEST_F(MergeTest, TakesOverWhatIsNotThereAndNothingTwice) {
  ASSERT_TRUE(into_.put_record(record(1, 4, 100)));
  ASSERT_TRUE(from_.put_record(record(1, 4, 100)));
  ASSERT_TRUE(from_.put_record(record(2, 4, 100)));
  ASSERT_TRUE(from_.put_artifact(digest_of("a").hex(), sample_kernel("a")));
  Override pin{.key = sample_key(2)};
  ASSERT_TRUE(from_.put_override(pin));
  const MergeReport first = merged();
  EXPECT_EQ(first.records, 2);
  EXPECT_EQ(first.artifacts, 1);
  EXPECT_EQ(first.overrides, 1);
  EXPECT_TRUE(first.disagreements.empty());
  EXPECT_EQ(into_.records().get(sample_key(1)).runs.size(), 2U);
  EXPECT_EQ(into_.records().get(sample_key(2)).overrides.size(), 1U);
  EXPECT_TRUE(into_.artifact(digest_of("a").hex()));
  const MergeReport second = merged();
  EXPECT_EQ(second.records + second.artifacts + second.overrides, 0);
  EXPECT_EQ(into_.records().get(sample_key(1)).runs.size(), 2U);
}

TEST_F(MergeTest, TheTrialsOfARecordComeAlong) {
  const TrialTable trials{.finals_seconds = 1, .wall_seconds = 2, .rows = {{.us = 5}}};
  const Result<fs::path> kept = from_.put_record(record(1, 4, 100), &trials);
  const Result<fs::path> torn = from_.put_record(record(2, 4, 100), &trials);
  ASSERT_TRUE(kept && torn);
  ASSERT_TRUE(publish_file(trials_file(*torn), "torn"));
  const MergeReport report = merged();
  EXPECT_EQ(report.records, 2);
  ASSERT_EQ(report.defects.size(), 1U);
  EXPECT_THAT(report.defects[0], HasSubstr(".kwt"));
  const fs::path there = into_.root() / kept->lexically_relative(from_.root());
  EXPECT_TRUE(read_trials(there, sample_key(1), into_.root()));
  EXPECT_FALSE(fs::exists(trials_file(into_.root() / torn->lexically_relative(from_.root()))));
}

TEST_F(MergeTest, ReportsWinnersThatDifferByMoreThanTheNoise) {
  ASSERT_TRUE(into_.put_record(record(1, 4, 100)));
  ASSERT_TRUE(from_.put_record(record(1, 3, 105)));
  ASSERT_TRUE(into_.put_record(record(2, 4, 100)));
  ASSERT_TRUE(from_.put_record(record(2, 3, 101)));  // within 2 %
  ASSERT_TRUE(into_.put_record(record(3, 4, 100, 2)));
  ASSERT_TRUE(from_.put_record(record(3, 3, 105, 2)));  // within the spread
  ASSERT_TRUE(into_.put_record(record(4, 4, 100)));
  ASSERT_TRUE(from_.put_record(record(4, 4, 200)));  // one configuration
  const MergeReport report = merged();
  ASSERT_EQ(report.disagreements.size(), 1U);
  EXPECT_EQ(report.disagreements[0].key, sample_key(1).text());
  EXPECT_EQ(report.disagreements[0].ours.choice.configuration.at("STAGES"), 4);
  EXPECT_EQ(report.disagreements[0].theirs.choice.configuration.at("STAGES"), 3);
  EXPECT_NEAR(report.disagreements[0].ratio, 1.05, 1e-9);
}

TEST_F(MergeTest, DefectiveFilesAreLeftOutAndNamed) {
  const fs::path torn = must(from_.put_record(record(1, 4, 100)));
  fs::resize_file(torn, 50);
  ASSERT_TRUE(from_.put_artifact(digest_of("a").hex(), sample_kernel("a")));
  fs::resize_file(from_.artifacts().path(digest_of("a").hex()), 50);
  const MergeReport report = merged();
  EXPECT_EQ(report.records, 0);
  EXPECT_EQ(report.artifacts, 0);
  ASSERT_EQ(report.defects.size(), 2U);
  EXPECT_THAT(report.defects[1], HasSubstr(torn.native()));
}

TEST_F(MergeTest, ADecisionThatCannotBeReadIsLeftOut) {
  const fs::path torn = must(from_.put_override({.key = sample_key(1)}));
  fs::resize_file(torn, 40);
  ASSERT_TRUE(from_.put_override({.key = sample_key(2)}));
  const MergeReport report = merged();
  EXPECT_EQ(report.overrides, 1);
  ASSERT_EQ(report.defects.size(), 1U);
  EXPECT_THAT(report.defects[0], HasSubstr(torn.native()));
}

TEST_F(MergeTest, AFolderThatCannotBeReadIsNamed) {
  ASSERT_TRUE(from_.put_record(record(1, 4, 100)));
  ASSERT_TRUE(from_.put_artifact(digest_of("a").hex(), sample_kernel("a")));
  const fs::path folder = from_.root() / "v1" / "artifacts";
  const FaultyFiles faulty(folder.native(), FaultyFiles::Call::opendir, EACCES);
  const MergeReport report = merged();
  EXPECT_EQ(report.records, 1);
  EXPECT_EQ(report.artifacts, 0);
  ASSERT_EQ(report.defects.size(), 1U);
  EXPECT_THAT(report.defects[0], HasSubstr(folder.native()));
}

TEST_F(MergeTest, ARecordWithoutItsArtifactIsLeftOut) {
  const TieredCache empty(dir_ / "empty");
  const TrialTable trials{.finals_seconds = 1, .wall_seconds = 2, .rows = {{.us = 5}}};
  ASSERT_TRUE(from_.put_record(record(1, 4, 100), &trials));
  ASSERT_TRUE(from_.put_record(record(2, 4, 100)));
  const MergeReport report = must(merge(empty, from_.root()));
  EXPECT_EQ(report.records, 0);
  ASSERT_EQ(report.defects.size(), 2U);
  EXPECT_THAT(report.defects[0], HasSubstr(digest_of("winner").hex() + " is in neither cache"));
  EXPECT_TRUE(empty.records().list().empty());
  put_winner(from_);
  EXPECT_EQ(merge(empty, from_.root())->records, 2);
}

TEST_F(MergeTest, FamiliesComeAlongWithTheBitsOfAllTheirKernels) {
  const std::string second = digest_of("second").hex();
  const fs::path family = must(from_.records().put(sample_family(8192)));
  const MergeReport without = merged();
  EXPECT_EQ(without.families, 0);
  ASSERT_EQ(without.defects.size(), 1U);
  EXPECT_EQ(without.defects[0], concat(family.native(), ": matmul/tiled BM=64's artifact ", second,
                                       " is in neither cache"));
  EXPECT_TRUE(into_.records().list_families().empty());

  ASSERT_TRUE(from_.put_artifact(second, sample_kernel("second")));
  const fs::path torn = must(from_.records().put(sample_family(64)));
  fs::resize_file(torn, 50);
  const MergeReport report = merged();
  EXPECT_EQ(report.families, 1);
  EXPECT_EQ(report.artifacts, 1);
  EXPECT_EQ(report.records, 0);
  ASSERT_EQ(report.defects.size(), 1U);
  EXPECT_THAT(report.defects[0], HasSubstr(torn.native()));
  EXPECT_TRUE(into_.artifact(second));
  const std::vector<RecordStore::FamilyRun> found = into_.records().families(sample_key(1));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(*read_family(found[0].file, into_.root()).value, sample_family(8192));
  EXPECT_EQ(merged().families, 0) << "nothing twice";
}

TEST_F(MergeTest, TheBitsOfAFamilyMayBeInTheBundleOfItsCache) {
  const TieredCache empty(dir_ / "empty");
  for (const char* name : {"winner", "second"}) {
    ASSERT_TRUE(from_.put_artifact(digest_of(name).hex(), sample_kernel(name)));
  }
  ASSERT_TRUE(from_.records().put(sample_family(8192)));
  ASSERT_TRUE(export_bundle(from_, dir_ / "bundle", {}));
  const fs::path served = dir_ / "served";
  ASSERT_TRUE(
      install_bundle(dir_ / "bundle", served, {.trusted_keys = {}, .allow_unsigned = true}));
  ASSERT_TRUE(RecordStore(served).put(sample_family(8192)));
  const MergeReport report = must(merge(empty, served));
  EXPECT_EQ(report.families, 1);
  EXPECT_EQ(report.artifacts, 2);
  EXPECT_TRUE(report.defects.empty());
}

TEST_F(MergeTest, WhereNothingCanBeWrittenItSaysSo) {
  put_winner(from_);
  ASSERT_TRUE(from_.put_record(record(1, 4, 100)));
  EXPECT_FALSE(merge(TieredCache("/dev/null/cache"), from_.root()));
}

}  // namespace
}  // namespace kernwright
