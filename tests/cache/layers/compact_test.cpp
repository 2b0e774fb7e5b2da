#include "cache/layers/compact.h"

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/files.h"
#include "support/hash.h"
#include "tests/cache/samples.h"
#include "tests/results.h"
#include "tests/support/faulty_files.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class CompactTest : public ::testing::Test {
 protected:
  void put(Trust trust, std::string created, std::string driver = "580.65.06",
           RecordGrade grade = RecordGrade::measured) {
    TuningRecord record = sample_record(1);
    record.trust = trust;
    record.created = std::move(created);
    record.environment.driver = std::move(driver);
    record.grade = grade;
    ASSERT_TRUE(cache_.put_record(record));
  }
  std::size_t left() const { return cache_.records().get(sample_key(1)).runs.size(); }
  std::int64_t compacted() const { return compact(cache_.records(), now_).value().files; }

  ScopedTempDir dir_;
  TieredCache cache_{dir_.path()};
  std::string now_ = "2026-12-01T00:00:00Z";
};

TEST_F(CompactTest, ANewerRunOfTheSameTrustReplacesTheOlder) {
  put(Trust::b, "2026-11-20T10:00:00Z");
  put(Trust::b, "2026-11-21T10:00:00Z");
  put(Trust::b, "2026-11-19T10:00:00Z");
  EXPECT_EQ(compacted(), 2);
  ASSERT_EQ(left(), 1U);
  EXPECT_EQ(cache_.records().get(sample_key(1)).runs[0].head.created, "2026-11-21T10:00:00Z");
  EXPECT_EQ(compacted(), 0);
}

TEST_F(CompactTest, TheTrialsOfARunGoWithIt) {
  const TrialTable trials{.finals_seconds = 1, .wall_seconds = 2, .rows = {{.us = 5}}};
  TuningRecord record = sample_record(1);
  record.created = "2026-11-20T10:00:00Z";
  const Result<fs::path> older = cache_.put_record(record, &trials);
  record.created = "2026-11-21T10:00:00Z";
  const Result<fs::path> newer = cache_.put_record(record, &trials);
  ASSERT_TRUE(older && newer);
  EXPECT_EQ(compacted(), 2) << "the record and its trials";
  EXPECT_FALSE(fs::exists(trials_file(*older)));
  EXPECT_TRUE(fs::exists(trials_file(*newer)));
}

TEST_F(CompactTest, WhatSomeEnvironmentWouldBeServedStays) {
  put(Trust::a, "2026-11-20T10:00:00Z");
  put(Trust::b, "2026-11-21T10:00:00Z");
  put(Trust::c, "2026-11-19T10:00:00Z", "470.1");
  EXPECT_EQ(compacted(), 0) << "of less trust and newer, or of another driver";
  put(Trust::a, "2026-11-22T10:00:00Z");
  EXPECT_EQ(compacted(), 2);
  EXPECT_EQ(left(), 2U);
}

TEST_F(CompactTest, ARunOfTheFutureReplacesNone) {
  put(Trust::a, "2099-01-01T00:00:00Z");
  put(Trust::a, "2026-11-20T10:00:00Z");
  EXPECT_EQ(compacted(), 0) << "its clock was wrong: the other may be the newer";
  put(Trust::a, "2026-11-21T10:00:00Z");
  EXPECT_EQ(compacted(), 1) << "of those with a date the older";
  EXPECT_EQ(left(), 2U);
  now_ = "2099-01-01T00:00:00Z";
  EXPECT_EQ(compacted(), 1);
}

TEST_F(CompactTest, APredictionGoesWhenTheSameCodeWasMeasured) {
  put(Trust::c, "2026-11-20T10:00:00Z", "580.65.06", RecordGrade::predicted);
  put(Trust::c, "2026-11-21T10:00:00Z");
  EXPECT_EQ(compacted(), 1);
  EXPECT_EQ(cache_.records().get(sample_key(1)).runs[0].head.grade, RecordGrade::measured);
}

TEST_F(CompactTest, DecisionsAndDefectsStay) {
  Override pin{.key = sample_key(1)};
  ASSERT_TRUE(cache_.put_override(pin));
  put(Trust::a, "2026-11-20T10:00:00Z");
  put(Trust::a, "2026-11-21T10:00:00Z");
  fs::resize_file(cache_.records().get(sample_key(1)).runs[1].file, 10);
  EXPECT_EQ(compacted(), 0);
  EXPECT_EQ(cache_.records().get(sample_key(1)).overrides.size(), 1U);
}

TEST_F(CompactTest, ANewerFamilyOfTheSameEnvironmentReplacesTheOlder) {
  const auto family = [this](std::string created, const auto& change) {
    FamilyRecord made = sample_family(8192);
    made.head.created = std::move(created);
    change(made);
    return cache_.records().put(made).value();
  };
  const auto as_it_is = [](FamilyRecord&) {};
  const fs::path old = family("2026-11-20T10:00:00Z", as_it_is);
  family("2026-11-23T10:00:00Z", [](FamilyRecord& made) { made.head.trust = Trust::c; });
  family("2026-11-23T10:00:00Z",
         [](FamilyRecord& made) { made.head.environment.driver = "590.1"; });
  family("2099-01-01T00:00:00Z", as_it_is);
  ASSERT_TRUE(cache_.records().put(sample_family(64)));
  put(Trust::b, "2026-11-20T10:00:00Z");
  EXPECT_EQ(compacted(), 0)
      << "of less trust, another driver, the future, another key, or no family";
  const fs::path fewer = family("2026-11-24T10:00:00Z", [](FamilyRecord& made) {
    made.head.kernels.pop_back();
    made.head.table = {{-1}, {0}, {0}, {0}};
  });
  EXPECT_EQ(compacted(), 2) << "the older, and the one of less trust";
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fewer));
  EXPECT_EQ(left(), 1U);
}

class PruneTest : public ::testing::Test {
 protected:
  std::string put(int number, int days_old) {
    const std::string digest = digest_of(std::to_string(number)).hex();
    EXPECT_TRUE(cache_.put_artifact(digest, sample_kernel(std::string(1000, 'x'))));
    fs::last_write_time(cache_.artifacts().path(digest),
                        fs::file_time_type::clock::now() - std::chrono::hours(24 * days_old));
    return digest;
  }
  std::int64_t bytes_of_one() const {
    return static_cast<std::int64_t>(
        fs::file_size(cache_.artifacts().path(cache_.artifacts().list()[0])));
  }
  bool has(const std::string& digest) const { return cache_.artifact(digest).value.has_value(); }

  ScopedTempDir dir_;
  TieredCache cache_{dir_.path()};
};

TEST_F(PruneTest, TheOldestGoFirstUntilTheRestFits) {
  const std::string newest = put(1, 1);
  const std::string oldest = put(2, 9);
  const std::string middle = put(3, 5);
  const Removed removed = must(prune(cache_, {.bytes = 2 * bytes_of_one()}));
  EXPECT_EQ(removed.files, 1);
  EXPECT_EQ(removed.bytes, bytes_of_one());
  EXPECT_TRUE(has(newest));
  EXPECT_TRUE(has(middle));
  EXPECT_FALSE(has(oldest));
}

TEST_F(PruneTest, WhatIsTooOldGoesHoweverMuchRoomThereIs) {
  const std::string young = put(1, 1);
  const std::string old = put(2, 9);
  ASSERT_TRUE(prune(cache_, {.days = 7}));
  EXPECT_TRUE(has(young));
  EXPECT_FALSE(has(old));
}

TEST_F(PruneTest, WinnersStayWhateverTheLimits) {
  const std::string winner = put(1, 1000);
  const std::string other = put(2, 0);
  TuningRecord record = sample_record(1);
  record.winner.artifact = winner;
  ASSERT_TRUE(cache_.put_record(record));
  ASSERT_TRUE(prune(cache_, {.bytes = 0, .days = 1}));
  EXPECT_TRUE(has(winner));
  EXPECT_FALSE(has(other));
}

TEST_F(PruneTest, ARecordWithDamagedEvidenceKeepsItsWinner) {
  const std::string winner = put(1, 1000);
  TuningRecord record = sample_record(1);
  record.winner.artifact = winner;
  const fs::path file = cache_.put_record(record).value();
  std::string bytes = *read_file(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  ASSERT_TRUE(publish_file(file, bytes));
  ASSERT_FALSE(read_record(file));
  ASSERT_TRUE(prune(cache_, {.bytes = 0}));
  EXPECT_TRUE(has(winner));
}

TEST_F(PruneTest, WhereARecordCannotBeReadNothingIsPruned) {
  const std::string other = put(1, 1000);
  TuningRecord record = sample_record(1);
  const fs::path file = cache_.put_record(record).value();
  const std::string good = *read_file(file);
  const auto refused = [&] {
    const Result<Removed> removed = prune(cache_, {.bytes = 0, .days = 1});
    EXPECT_TRUE(has(other));
    return removed ? "pruned" : removed.error().message;
  };
  const auto changed = [&](std::size_t at, int byte) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(byte);
    EXPECT_TRUE(publish_file(file, bytes));
    return refused();
  };
  EXPECT_THAT(changed(100, ~good[100]), HasSubstr(file.native() + ": the digest does not fit"));
  EXPECT_THAT(changed(8, 3), HasSubstr("format version 3")) << "a later one";
  fs::remove(file);
  fs::create_symlink("elsewhere", file);
  EXPECT_THAT(refused(), HasSubstr("there is a link in it"));
  fs::remove(file);
  ASSERT_TRUE(publish_file(file, good));
  for (const char* folder : {"v1/records", "v1/records/sm_90/h200", "v1/artifacts"}) {
    const FaultyFiles faulty((dir_ / folder).native(), FaultyFiles::Call::opendir, EACCES);
    EXPECT_THAT(refused(), HasSubstr(folder));
  }
  {
    const FaultyFiles faulty(file.native(), FaultyFiles::Call::open_to_read, EMFILE);
    EXPECT_THAT(refused(), HasSubstr(file.native()));
  }
  EXPECT_TRUE(prune(cache_, {.bytes = 0, .days = 1}));
  EXPECT_FALSE(has(other));
}

TEST_F(PruneTest, AFolderInPlaceOfARecordKeepsAllArtifacts) {
  const std::string other = put(1, 1000);
  const fs::path file = cache_.put_record(sample_record(1)).value();
  fs::remove(file);
  fs::create_directory(file);
  EXPECT_THAT(prune(cache_, {.bytes = 0, .days = 1}),
              Fails(HasSubstr(file.native() + ": a folder, not a file")));
  EXPECT_TRUE(has(other));
}

TEST_F(PruneTest, TheKernelsOfFamiliesStay) {
  const std::string first = put(1, 1000);
  const std::string second = put(2, 1000);
  const std::string other = put(3, 0);
  FamilyRecord family = sample_family(8192);
  family.head.kernels[0].artifact = first;
  family.head.kernels[1].artifact = second;
  const fs::path file = cache_.records().put(family).value();
  const fs::path log = cache_.log(family.head.key);
  ASSERT_TRUE(publish_file(log, "log"));
  fs::last_write_time(log, fs::file_time_type::clock::now() - std::chrono::hours(2));
  fs::rename(file, file.native() + ".aside");
  ASSERT_TRUE(publish_file(file, "torn"));
  EXPECT_THAT(prune(cache_, {.bytes = 0}),
              Fails(ErrorCode::corrupt, HasSubstr("nothing was pruned")));
  EXPECT_TRUE(has(other));
  fs::rename(file.native() + ".aside", file);
  ASSERT_TRUE(prune(cache_, {.bytes = 0, .days = 1}));
  EXPECT_TRUE(has(first) && has(second) && fs::exists(log));
  EXPECT_FALSE(has(other));
  fs::remove(file);
  fs::create_directory(file);
  EXPECT_THAT(prune(cache_, {.bytes = 0}), Fails(HasSubstr("a folder, not a file")));
  EXPECT_TRUE(has(first));
}

TEST_F(PruneTest, WhatKilledWritersLeftGoesAfterAnHour) {
  put(1, 0);
  const fs::path folder = cache_.artifacts().path(cache_.artifacts().list()[0]).parent_path();
  std::ofstream(folder / ".old.tmp") << "x";
  std::ofstream(folder / ".young.tmp") << "x";
  fs::last_write_time(folder / ".old.tmp",
                      fs::file_time_type::clock::now() - std::chrono::hours(2));
  ASSERT_TRUE(prune(cache_, {}));
  EXPECT_FALSE(fs::exists(folder / ".old.tmp"));
  EXPECT_TRUE(fs::exists(folder / ".young.tmp"));
}

TEST_F(PruneTest, TrialsWithoutTheirRecordGoAfterAnHour) {
  const TrialTable trials{.finals_seconds = 1, .wall_seconds = 2, .rows = {{.us = 5}}};
  const Result<fs::path> whole = cache_.put_record(sample_record(1), &trials);
  const Result<fs::path> young = cache_.put_record(sample_record(2), &trials);
  const Result<fs::path> old = cache_.put_record(sample_record(3), &trials);
  ASSERT_TRUE(whole && young && old);
  fs::remove(*young);
  fs::remove(*old);
  const auto past = fs::file_time_type::clock::now() - std::chrono::hours(2);
  for (const fs::path& file : {*whole, *old}) fs::last_write_time(trials_file(file), past);
  ASSERT_TRUE(prune(cache_, {}));
  EXPECT_TRUE(fs::exists(trials_file(*whole)));
  EXPECT_TRUE(fs::exists(trials_file(*young)));
  EXPECT_FALSE(fs::exists(trials_file(*old)));
}

TEST_F(PruneTest, LogsOfKeysWithoutARecordGoAfterAnHour) {
  ASSERT_TRUE(cache_.put_record(sample_record(1)));
  const auto past = fs::file_time_type::clock::now() - std::chrono::hours(2);
  for (const int m : {1, 2, 3}) ASSERT_TRUE(publish_file(cache_.log(sample_key(m)), "log"));
  for (const int m : {1, 2}) fs::last_write_time(cache_.log(sample_key(m)), past);
  const Removed removed = must(prune(cache_, {}));
  EXPECT_EQ(removed.files, 1);
  EXPECT_TRUE(fs::exists(cache_.log(sample_key(1)))) << "that of a key with a record";
  EXPECT_FALSE(fs::exists(cache_.log(sample_key(2))));
  EXPECT_TRUE(fs::exists(cache_.log(sample_key(3)))) << "its search may still run";
}

TEST_F(PruneTest, AnEmptyCacheHasNothingToPrune) {
  const Removed removed = must(prune(cache_, {}));
  EXPECT_EQ(removed.files, 0);
}

}  // namespace
}  // namespace kernwright
