#include "cache/record_store.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <set>
#include <string>

#include "cache/entry_file.h"
#include "support/files.h"
#include "tests/cache/samples.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class RecordStoreTest : public ::testing::Test {
 protected:
  ScopedTempDir dir_;
  RecordStore store_{dir_.path()};
};

TEST_F(RecordStoreTest, LiesWhereTheReadmeSays) {
  const Result<fs::path> path = store_.put(sample_record(4096));
  ASSERT_TRUE(path) << path.error().message;
  const std::string relative = fs::relative(*path, dir_.path()).native();
  EXPECT_EQ(relative.find("v1/records/sm_90/h200/matmul/m=4096_n=6144_k=4096_dtype=bf16-"), 0U)
      << relative;
  EXPECT_EQ(path->extension(), ".kwr");
}

TEST_F(RecordStoreTest, EveryRunIsKeptNewestFirst) {
  TuningRecord record = sample_record(1);
  for (const char* created :
       {"2026-11-20T10:00:00Z", "2026-11-22T10:00:00Z", "2026-11-21T10:00:00Z"}) {
    record.created = created;
    ASSERT_TRUE(store_.put(record));
  }
  const RecordStore::Found found = store_.get(record.key);
  ASSERT_EQ(found.records.size(), 3U);
  EXPECT_EQ(found.records[0].created, "2026-11-22T10:00:00Z");
  EXPECT_EQ(found.records[1].created, "2026-11-21T10:00:00Z");
  EXPECT_EQ(found.records[2].created, "2026-11-20T10:00:00Z");
  EXPECT_EQ(found.reason, MissReason::none);
}

TEST_F(RecordStoreTest, RunsOfOneSecondAreOrderedByTheirPublication) {
  TuningRecord record = sample_record(1);
  for (int i = 0; i < 20; ++i) {
    record.measured = i;
    ASSERT_TRUE(store_.put(record));
  }
  const RecordStore::Found found = store_.get(record.key);
  ASSERT_EQ(found.records.size(), 20U);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(found.records[static_cast<std::size_t>(i)].measured, 19 - i);
  }
}

TEST_F(RecordStoreTest, EveryPartOfTheKeyTellsRecordsApart) {
  const TuningRecord base = sample_record(1);
  std::vector<TuningRecord> records(5, base);
  records[1].key.problem = sample_key(2).problem;
  records[2].key.target = "sm_80";
  records[3].key.sku = "h100_sxm";
  records[4].key.policy.l2 = L2State::warm;
  for (const TuningRecord& record : records) ASSERT_TRUE(store_.put(record));
  for (const TuningRecord& record : records) {
    const RecordStore::Found found = store_.get(record.key);
    ASSERT_EQ(found.records.size(), 1U);
    EXPECT_EQ(found.records[0].key, record.key);
  }
  EXPECT_EQ(store_.list().size(), records.size());
}

TEST_F(RecordStoreTest, ADefectiveRunIsReportedAndTheOthersServed) {
  const Result<fs::path> first = store_.put(sample_record(1));
  ASSERT_TRUE(store_.put(sample_record(1)));
  ASSERT_TRUE(first);
  fs::resize_file(*first, 100);
  const RecordStore::Found found = store_.get(sample_key(1));
  EXPECT_EQ(found.records.size(), 1U);
  EXPECT_EQ(found.reason, MissReason::none);
  ASSERT_EQ(found.defects.size(), 1U);
  EXPECT_THAT(found.defects[0], HasSubstr(first->native()));
}

TEST_F(RecordStoreTest, AFrameWhoseKeyIsNotItsRecordsIsAMiss) {
  const Result<fs::path> path = store_.put(sample_record(1));
  ASSERT_TRUE(path);
  ASSERT_TRUE(publish_file(
      *path, encode_entry({"record", sample_key(1).text(), to_json(sample_record(2))})));
  EXPECT_EQ(store_.get(sample_key(1)).reason, MissReason::key_mismatch);
}

TEST_F(RecordStoreTest, ARecordThatWouldNotReadBackIsRefused) {
  TuningRecord record = sample_record(1);
  record.winner.predicted_us = std::numeric_limits<double>::infinity();
  const Result<fs::path> path = store_.put(record);
  ASSERT_FALSE(path);
  EXPECT_THAT(path.error().message, HasSubstr("winner.predicted_us"));
  EXPECT_EQ(store_.get(record.key).reason, MissReason::absent);
}

TEST_F(RecordStoreTest, NamesLeadNowhereElse) {
  TuningRecord record = sample_record(1);
  record.key.problem = "../../../../outside ../..=/" + std::string(1000, 'x');
  record.key.target = "..";
  record.key.sku = "";
  const Result<fs::path> path = store_.put(record);
  ASSERT_TRUE(path) << path.error().message;
  const std::string relative =
      fs::relative(fs::canonical(*path), fs::canonical(dir_.path())).native();
  EXPECT_EQ(relative.find("v1/records/"), 0U) << relative;
  EXPECT_EQ(store_.get(record.key).records.size(), 1U);
}

TEST_F(RecordStoreTest, ListsEveryFileWithItsRecordOrItsDefect) {
  const Result<fs::path> good = store_.put(sample_record(1));
  const Result<fs::path> cut = store_.put(sample_record(2));
  const Result<fs::path> moved = store_.put(sample_record(3));
  ASSERT_TRUE(good && cut && moved);
  fs::resize_file(*cut, 3);
  fs::copy_file(*moved, good->parent_path() / moved->filename());
  ASSERT_TRUE(publish_file(dir_ / "v1" / "records" / "README", "not a record"));
  std::multiset<std::string> reasons;
  for (const RecordStore::Listed& listed : store_.list()) {
    reasons.insert(std::string(to_string(listed.record.reason)));
  }
  EXPECT_EQ(reasons, (std::multiset<std::string>{"none", "none", "corrupt", "key_mismatch"}));
}

}  // namespace
}  // namespace kernwright
