#include "cache/stores/record_store.h"

#include <algorithm>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cache/entries/entry_file.h"
#include "support/file_calls.h"
#include "support/files.h"
#include "support/text.h"
#include "tests/cache/samples.h"
#include "tests/results.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class RecordStoreTest : public ::testing::Test {
 protected:
  std::vector<RecordRun> runs_like(const RecordKey& shape) const {
    std::vector<RecordRun> all;
    for (const RecordStore::Alike& alike : store_.like(shape)) {
      for (RecordRun& run : store_.runs(alike, shape)) all.push_back(std::move(run));
    }
    return all;
  }
  ScopedTempDir dir_;
  RecordStore store_{dir_.path()};
};

TEST_F(RecordStoreTest, LiesWhereTheReadmeSays) {
  const fs::path path = must(store_.put(sample_record(4096)));
  const std::string relative = fs::relative(path, dir_.path()).native();
  EXPECT_EQ(relative.find("v1/records/sm_90/h200/matmul/m=4096_n=6144_k=4096_dtype=bf16-"), 0U)
      << relative;
  EXPECT_EQ(path.extension(), ".kwr");
}

TEST_F(RecordStoreTest, TheTrialsOfARunLieBesideIt) {
  TrialTable trials{.finals_seconds = 2, .wall_seconds = 3, .rows = {{.us = 7.5, .samples = 2}}};
  const Result<fs::path> with = store_.put(sample_record(1), &trials);
  const Result<fs::path> without = store_.put(sample_record(2));
  ASSERT_TRUE(with && without);
  const Lookup<TrialTable> read = read_trials(*with, sample_key(1), dir_.path());
  ASSERT_TRUE(read) << read.detail;
  EXPECT_EQ(*read.value, trials);
  EXPECT_EQ(trials_file(*with).extension(), ".kwt");
  EXPECT_EQ(read_trials(*without, sample_key(2), dir_.path()).reason, MissReason::absent);
  EXPECT_EQ(read_trials(*with, sample_key(2)).reason, MissReason::key_mismatch);
  const RecordStore::Found found = store_.get(sample_key(1));
  EXPECT_EQ(found.runs.size(), 1U) << "a lookup passes them over";
  EXPECT_THAT(found.defects, ::testing::IsEmpty());
  EXPECT_EQ(store_.list().size(), 2U);
  ASSERT_TRUE(publish_file(trials_file(*with), "torn"));
  EXPECT_EQ(read_trials(*with, sample_key(1)).reason, MissReason::corrupt);
  EXPECT_EQ(store_.get(sample_key(1)).runs.size(), 1U) << "and are not needed for it";
}

TEST_F(RecordStoreTest, ARecordThatReplacesAnotherKeepsItsTrials) {
  const TrialTable trials{.finals_seconds = 2, .wall_seconds = 3, .rows = {{.us = 7.5}}};
  const fs::path before = must(store_.put(sample_record(1), &trials));
  const fs::path after = must(store_.replace(before, sample_record(1)));
  const Lookup<TrialTable> read = read_trials(after, sample_key(1), dir_.path());
  ASSERT_TRUE(read) << read.detail;
  EXPECT_EQ(*read.value, trials);
  EXPECT_FALSE(fs::exists(before));
  EXPECT_FALSE(fs::exists(trials_file(before)));
}

TEST_F(RecordStoreTest, ARunOfAnotherStoreIsReplacedInThisOneAlone) {
  const TrialTable trials{
      .finals_seconds = 2, .wall_seconds = 3, .rows = {{.us = 7.5, .samples = 2}}};
  const RecordStore other(dir_.path() / "other");
  const fs::path old = must(other.put(sample_record(1), &trials));
  const fs::path path = must(store_.replace(old, sample_record(1)));
  EXPECT_TRUE(read_trials(path, sample_key(1)));
  EXPECT_TRUE(read_record(old));
  EXPECT_TRUE(read_trials(old, sample_key(1)));
}

TEST_F(RecordStoreTest, EveryRunIsKeptNewestFirst) {
  TuningRecord record = sample_record(1);
  for (const char* created :
       {"2026-11-20T10:00:00Z", "2026-11-22T10:00:00Z", "2026-11-21T10:00:00Z"}) {
    record.created = created;
    ASSERT_TRUE(store_.put(record));
  }
  const RecordStore::Found found = store_.get(record.key);
  ASSERT_EQ(found.runs.size(), 3U);
  EXPECT_EQ(found.runs[0].head.created, "2026-11-22T10:00:00Z");
  EXPECT_EQ(found.runs[1].head.created, "2026-11-21T10:00:00Z");
  EXPECT_EQ(found.runs[2].head.created, "2026-11-20T10:00:00Z");
  EXPECT_EQ(found.reason, MissReason::none);
}

TEST_F(RecordStoreTest, RunsOfOneSecondAreOrderedByTheirPublication) {
  TuningRecord record = sample_record(1);
  for (int i = 0; i < 20; ++i) {
    record.measured = i;
    ASSERT_TRUE(store_.put(record));
  }
  const RecordStore::Found found = store_.get(record.key);
  ASSERT_EQ(found.runs.size(), 20U);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(read_record(found.runs[static_cast<std::size_t>(i)].file).value->measured, 19 - i);
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
    ASSERT_EQ(found.runs.size(), 1U);
    EXPECT_EQ(found.runs[0].head.key, record.key);
  }
  EXPECT_EQ(store_.list().size(), records.size());
}

TEST_F(RecordStoreTest, ADefectiveRunIsReportedAndTheOthersServed) {
  const Result<fs::path> first = store_.put(sample_record(1));
  ASSERT_TRUE(store_.put(sample_record(1)));
  ASSERT_TRUE(first);
  fs::resize_file(*first, 100);
  const RecordStore::Found found = store_.get(sample_key(1));
  EXPECT_EQ(found.runs.size(), 1U);
  EXPECT_EQ(found.reason, MissReason::none);
  ASSERT_EQ(found.defects.size(), 1U);
  EXPECT_THAT(found.defects[0], HasSubstr(first->native()));
}

TEST_F(RecordStoreTest, AFrameWhoseKeyIsNotItsRecordsIsAMiss) {
  const fs::path path = must(store_.put(sample_record(1)));
  const auto write = [&](const EntryFile& entry) {
    ASSERT_TRUE(publish_file(path, encode_entry(entry)));
  };
  const std::string key = sample_key(1).text();
  const TuningRecord other = sample_record(2);
  write({"record", key, encode_head(head_of(other)), to_json(other)});
  EXPECT_EQ(store_.get(sample_key(1)).reason, MissReason::key_mismatch);
  EXPECT_EQ(read_record(path).reason, MissReason::key_mismatch);
  write({"record", key, to_json(other)});
  EXPECT_EQ(store_.get(sample_key(1)).reason, MissReason::key_mismatch);
}

TEST_F(RecordStoreTest, ARecordOfTheFirstFormatIsRead) {
  const TuningRecord record = sample_record(1);
  const fs::path path = store_.folder(record.key) / "20261101T000000.000000Z-0123456789abcdef.kwr";
  ASSERT_TRUE(publish_file(path, encode_entry({"record", record.key.text(), to_json(record)})));
  const RecordStore::Found found = store_.get(record.key);
  ASSERT_EQ(found.runs.size(), 1U);
  EXPECT_EQ(found.runs[0].head, head_of(record));
  EXPECT_EQ(to_json(*read_record(path).value), to_json(record));
}

TEST_F(RecordStoreTest, ARecordOfALaterVersionIsPassedOverAndTheOthersServed) {
  const fs::path later = must(store_.put(sample_record(1)));
  std::string bytes = *read_file(later);
  bytes[8] = 9;
  ASSERT_TRUE(publish_file(later, bytes));
  EXPECT_EQ(store_.get(sample_key(1)).reason, MissReason::other_version);
  ASSERT_TRUE(store_.put(sample_record(1)));
  const RecordStore::Found found = store_.get(sample_key(1));
  EXPECT_EQ(found.runs.size(), 1U);
  EXPECT_EQ(found.defects.size(), 1U);
}

TEST_F(RecordStoreTest, AHeadThatIsNotThatOfItsEvidenceIsADefect) {
  const fs::path path = must(store_.put(sample_record(1)));
  RecordHead head = head_of(sample_record(1));
  head.winner.artifact = head.artifacts.at(0);
  ASSERT_TRUE(publish_file(path, encode_entry({"record", head.key.text(), encode_head(head),
                                               to_json(sample_record(1))})));
  EXPECT_EQ(read_record(path).reason, MissReason::corrupt);
}

TEST_F(RecordStoreTest, AHeadFromBeforeLaunchPathsWereMeasuredKnowsNone) {
  TuningRecord record = sample_record(1);
  const std::string whole = encode_head(head_of(record));
  EXPECT_EQ(decode_head(whole)->winner.best_path, KernelPath::graph);
  record.launch_paths = {};
  std::string bytes = encode_head(head_of(record));
  EXPECT_EQ(decode_head(bytes)->winner.best_path, std::nullopt);
  bytes.resize(bytes.size() - sizeof(std::uint32_t));  // the length of no name
  const RecordHead old = must(decode_head(bytes));
  EXPECT_EQ(old, head_of(record));
  ASSERT_TRUE(whole.ends_with("graph"));
  EXPECT_FALSE(decode_head(whole.substr(0, whole.size() - 1)));
}

TEST_F(RecordStoreTest, ALookupDoesNotReadTheEvidence) {
  const fs::path path = must(store_.put(sample_record(1)));
  std::string bytes = *read_file(path);
  bytes.back() ^= 1;
  ASSERT_TRUE(publish_file(path, bytes));
  EXPECT_EQ(store_.get(sample_key(1)).runs.size(), 1U);
  EXPECT_EQ(read_record(path).reason, MissReason::corrupt);
}

TEST_F(RecordStoreTest, DecisionsComeInTheOrderTheyWereMadeWhateverTheClockSays) {
  Override one{.key = sample_key(1), .action = OverrideAction::ban};
  one.choice.kernel_template = "matmul/tiled";
  one.choice.configuration = Configuration({{"BM", 64}});
  one.why = "slow \"here\"";
  one.created = "2026-11-20T10:00:00Z";
  ASSERT_TRUE(store_.put(one));
  one.action = OverrideAction::lift;
  one.created = "1970-01-01T00:00:00Z";
  ASSERT_TRUE(store_.put(one));
  const RecordStore::Found found = store_.get(sample_key(1));
  ASSERT_EQ(found.overrides.size(), 2U);
  EXPECT_EQ(found.overrides[0].action, OverrideAction::ban);
  EXPECT_EQ(found.overrides[0].why, one.why);
  EXPECT_EQ(found.overrides[1].action, OverrideAction::lift);
  EXPECT_EQ(found.overrides[1].choice.configuration, one.choice.configuration);
  EXPECT_TRUE(found.runs.empty());
  EXPECT_EQ(store_.list_overrides().size(), 2U);
}

TEST_F(RecordStoreTest, ATornDecisionIsADefect) {
  Override one{.key = sample_key(1)};
  const fs::path path = must(store_.put(one));
  fs::resize_file(path, 40);
  const RecordStore::Found found = store_.get(sample_key(1));
  EXPECT_TRUE(found.overrides.empty());
  ASSERT_EQ(found.defects.size(), 1U);
  EXPECT_THAT(found.defects[0], HasSubstr(path.native()));
}

TEST_F(RecordStoreTest, ADecisionInTheFolderOfAnotherKeyIsADefect) {
  const fs::path made = *store_.put(Override{.key = sample_key(1)});
  const fs::path other = store_.put(Override{.key = sample_key(2)})->parent_path();
  fs::rename(made, other / made.filename());
  const RecordStore::Found found = store_.get(sample_key(2));
  EXPECT_EQ(found.overrides.size(), 1U);
  ASSERT_EQ(found.defects.size(), 1U);
  EXPECT_THAT(found.defects[0], HasSubstr((other / made.filename()).native()));
  int defects = 0;
  for (const RecordStore::ListedOverride& listed : store_.list_overrides()) {
    if (!listed.override) ++defects;
  }
  EXPECT_EQ(defects, 1);
}

TEST_F(RecordStoreTest, ADecisionWhoseFrameHasAnotherKeyIsADefect) {
  const Override one{.key = sample_key(1)};
  const fs::path path = must(store_.put(one));
  const std::string bytes =
      encode_entry({.kind = "override", .key = sample_key(2).text(), .payload = to_json(one)});
  ASSERT_TRUE(publish_file(path, bytes));
  const RecordStore::Found found = store_.get(sample_key(1));
  EXPECT_TRUE(found.overrides.empty());
  EXPECT_EQ(found.reason, MissReason::key_mismatch);
  ASSERT_EQ(found.defects.size(), 1U);
  EXPECT_THAT(found.defects[0], HasSubstr(path.native()));
}

TEST_F(RecordStoreTest, AHeadWithAPolicyThatDoesNotExistIsCorrupt) {
  RecordHead head = head_of(sample_record(1));
  std::string bytes = encode_head(head);
  head.key.policy.l2 = L2State::warm;
  const std::string warm = encode_head(head);
  const auto place = std::mismatch(bytes.begin(), bytes.end(), warm.begin()).first;
  *place = 77;
  EXPECT_EQ(decode_head(bytes).error().message, "record head: no such measure policy");
}

TEST_F(RecordStoreTest, ANameTellsTheSizesOfItsOpenDims) {
  ASSERT_TRUE(store_.put(sample_record(4096)));
  RecordKey shape = sample_key(1);
  shape.problem = "matmul m=? n=? k=4096 dtype=bf16";
  ASSERT_EQ(store_.like(shape).size(), 1U);
  EXPECT_EQ(store_.like(shape)[0].sizes, (std::vector<std::int64_t>{4096, 6144}));
  // Cut within the last size, which may be any.
  TuningRecord record = sample_record(1);
  const std::string before = concat("first=12 ", std::string(83, 'x'), "=1 ");
  record.key.problem = concat("matmul ", before, "last=345678");
  ASSERT_TRUE(store_.put(record));
  shape.problem = concat("matmul first=? ", before.substr(9), "last=?");
  ASSERT_EQ(store_.like(shape).size(), 1U);
  EXPECT_EQ(store_.like(shape)[0].sizes, (std::vector<std::int64_t>{12}));
  EXPECT_EQ(runs_like(shape).size(), 1U);
}

TEST_F(RecordStoreTest, FindsProblemsThatDifferInOpenDimsAlone) {
  for (const int m : {1, 17, 4096}) ASSERT_TRUE(store_.put(sample_record(m)));
  TuningRecord other = sample_record(17);
  other.key.problem = "matmul m=17 n=6144 k=4097 dtype=bf16";
  ASSERT_TRUE(store_.put(other));
  other = sample_record(17);
  other.key.policy.l2 = L2State::warm;
  ASSERT_TRUE(store_.put(other));
  RecordKey shape = sample_key(1);
  shape.problem = "matmul m=? n=6144 k=4096 dtype=bf16";
  std::multiset<std::string> found;
  for (const RecordRun& run : runs_like(shape)) found.insert(run.head.key.problem);
  EXPECT_EQ(found, (std::multiset<std::string>{sample_key(1).problem, sample_key(17).problem,
                                               sample_key(4096).problem}));
}

TEST_F(RecordStoreTest, AFormulaIsNoOpenDim) {
  TuningRecord record = sample_record(1);
  for (const char* problem : {"elementwise n=64 formula=a*x+y", "elementwise n=4096 formula=a*x+y",
                              "elementwise n=64 formula=a/x+y"}) {
    record.key.problem = problem;
    ASSERT_TRUE(store_.put(record));
  }
  RecordKey shape = record.key;
  shape.problem = "elementwise n=? formula=a*x+y";
  std::multiset<std::string> found;
  for (const RecordRun& run : runs_like(shape)) found.insert(run.head.key.problem);
  EXPECT_EQ(found, (std::multiset<std::string>{"elementwise n=4096 formula=a*x+y",
                                               "elementwise n=64 formula=a*x+y"}));
}

TEST_F(RecordStoreTest, ARecordThatWouldNotReadBackIsRefused) {
  TuningRecord record = sample_record(1);
  record.winner.predicted_us = std::numeric_limits<double>::infinity();
  EXPECT_THAT(store_.put(record), Fails(HasSubstr("winner.predicted_us")));
  EXPECT_EQ(store_.get(record.key).reason, MissReason::absent);
}

TEST_F(RecordStoreTest, NamesLeadNowhereElse) {
  TuningRecord record = sample_record(1);
  record.key.problem = "../../../../outside ../..=/" + std::string(1000, 'x');
  record.key.target = "..";
  record.key.sku = "";
  const fs::path path = must(store_.put(record));
  const std::string relative =
      fs::relative(fs::canonical(path), fs::canonical(dir_.path())).native();
  EXPECT_EQ(relative.find("v1/records/"), 0U) << relative;
  EXPECT_EQ(store_.get(record.key).runs.size(), 1U);
}

/// While it lives, the first file of a record that is opened is first replaced by another.
class ReplacedMeanwhile {
 public:
  explicit ReplacedMeanwhile(const RecordStore& store) {
    to_ = &store;
    static FileCalls calls = system_file_calls();
    calls.open = [](const char* path, std::size_t root_bytes, int flags, mode_t mode) {
      const RecordStore* to =
          fs::path(path).extension() == ".kwr" ? std::exchange(to_, nullptr) : nullptr;
      if (to != nullptr) {
        EXPECT_TRUE(to->put(sample_record(9)));
        fs::remove(path);
      }
      return system_file_calls().open(path, root_bytes, flags, mode);
    };
    use_file_calls(calls);
  }
  ~ReplacedMeanwhile() { use_file_calls(system_file_calls()); }
  ReplacedMeanwhile(const ReplacedMeanwhile&) = delete;
  ReplacedMeanwhile& operator=(const ReplacedMeanwhile&) = delete;

 private:
  static inline const RecordStore* to_ = nullptr;
};

TEST_F(RecordStoreTest, WhatIsReplacedWhileItIsListedIsNoDefect) {
  for (int m = 1; m <= 3; ++m) ASSERT_TRUE(store_.put(sample_record(m)));
  const ReplacedMeanwhile meanwhile(store_);
  const std::vector<RecordStore::Listed> listed = store_.list();
  EXPECT_EQ(listed.size(), 3U);
  bool has_new = false;
  for (const RecordStore::Listed& one : listed) {
    ASSERT_TRUE(one.record) << one.record.detail;
    has_new = has_new || one.record.value->key == sample_key(9);
  }
  EXPECT_TRUE(has_new);
}

TEST_F(RecordStoreTest, AFolderInPlaceOfARecordIsADefect) {
  const fs::path path = must(store_.put(sample_record(1)));
  fs::remove(path);
  fs::create_directory(path);
  const std::vector<RecordStore::ListedHead> heads = store_.list_heads();
  ASSERT_EQ(heads.size(), 1U);
  EXPECT_EQ(heads[0].path, path);
  EXPECT_EQ(heads[0].head.reason, MissReason::unreadable);
  EXPECT_EQ(heads[0].head.detail, path.native() + ": a folder, not a file");
  EXPECT_EQ(store_.list().size(), 1U);
  EXPECT_TRUE(store_.list_overrides().empty());
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

TEST_F(RecordStoreTest, AFamilyIsFoundByAnyProblemOfItsOperationTheNewestFirst) {
  FamilyRecord family = sample_family(8192);
  for (const char* created :
       {"2026-11-20T10:00:00Z", "2026-11-22T10:00:00Z", "2026-11-21T10:00:00Z"}) {
    family.head.created = created;
    const fs::path file = must(store_.put(family));
    EXPECT_EQ(file.extension(), ".kwf");
    EXPECT_EQ(file.parent_path(), store_.folder(family.head.key));
    const Lookup<FamilyRecord> read = read_family(file, dir_.path());
    ASSERT_TRUE(read) << read.detail;
    EXPECT_EQ(*read.value, family);
  }
  family = sample_family(64);
  family.head.created = "2026-11-23T10:00:00Z";
  const fs::path newest = must(store_.put(family));
  const std::vector<RecordStore::FamilyRun> runs = store_.families(sample_key(17));
  ASSERT_EQ(runs.size(), 4U);
  EXPECT_EQ(runs[0].file, newest);
  EXPECT_EQ(runs[0].head, family.head);
  EXPECT_EQ(runs[1].head.created, "2026-11-22T10:00:00Z");
  EXPECT_EQ(runs[2].head.created, "2026-11-21T10:00:00Z");
  EXPECT_EQ(runs[3].head.created, "2026-11-20T10:00:00Z");
  EXPECT_EQ(store_.list_families().size(), 4U);
}

TEST_F(RecordStoreTest, FamiliesOfAnotherOperationDeviceOrPolicyAreNotFound) {
  const RecordKey like = sample_key(17);
  std::vector<FamilyRecord> others(4, sample_family(8192));
  others[0].head.key.problem = "softmax m=1..8192 n=4096 dtype=bf16";
  others[1].head.key.target = "sm_80";
  others[2].head.key.sku = "h100_sxm";
  others[3].head.key.policy.l2 = L2State::warm;
  const fs::path own = must(store_.put(sample_family(8192)));
  for (const FamilyRecord& other : others) {
    const fs::path file = must(store_.put(other));
    const fs::path moved = own.parent_path() / file.filename();
    EXPECT_EQ(store_.families(like).size(), 1U) << other.head.key.text();
    EXPECT_EQ(store_.families(other.head.key).size(), 1U) << other.head.key.text();
    fs::copy_file(file, moved);
    EXPECT_EQ(store_.families(like).size(), 1U) << "also in the folder of another";
    fs::remove(moved);
  }
}

TEST_F(RecordStoreTest, AFamilyDoesNotDisturbTheRecordsBesideIt) {
  ASSERT_TRUE(store_.put(sample_record(17)));
  const fs::path family = must(store_.put(sample_family(8192)));
  fs::copy_file(family, store_.folder(sample_key(17)) / family.filename());
  const RecordStore::Found found = store_.get(sample_key(17));
  EXPECT_EQ(found.runs.size(), 1U);
  EXPECT_THAT(found.defects, ::testing::IsEmpty());
  EXPECT_EQ(store_.get(sample_family(8192).head.key).reason, MissReason::absent);
  RecordKey shape = sample_key(1);
  shape.problem = "matmul m=? n=6144 k=4096 dtype=bf16";
  EXPECT_EQ(runs_like(shape).size(), 1U);
  EXPECT_EQ(store_.list().size(), 1U);
  EXPECT_EQ(store_.list_heads().size(), 1U);
  EXPECT_EQ(store_.heads("matmul").size(), 1U);
}

TEST_F(RecordStoreTest, ATornOrMisplacedFamilyIsADefectAndNoAnswer) {
  const fs::path torn = must(store_.put(sample_family(64)));
  const fs::path good = must(store_.put(sample_family(8192)));
  const fs::path moved = torn.parent_path() / good.filename();
  fs::copy_file(good, moved);
  fs::resize_file(torn, fs::file_size(torn) / 4);
  std::map<fs::path, MissReason> reasons;
  for (const RecordStore::ListedFamily& listed : store_.list_families()) {
    reasons[listed.path] = listed.family.reason;
    if (listed.family) continue;
    EXPECT_THAT(listed.family.detail, HasSubstr(listed.path.native()));
  }
  EXPECT_EQ(reasons, (std::map<fs::path, MissReason>{{good, MissReason::none},
                                                     {torn, MissReason::corrupt},
                                                     {moved, MissReason::key_mismatch}}));
  for (const RecordStore::FamilyRun& run : store_.families(sample_key(1))) {
    EXPECT_EQ(run.head, sample_family(8192).head);
  }
}

TEST_F(RecordStoreTest, AFamilysHeadBelongsToItsEvidence) {
  const FamilyRecord family = sample_family(8192);
  const fs::path path = must(store_.put(family));
  FamilyHead head = family.head;
  head.kernels[1].artifact = digest_of("other").hex();
  const auto write = [&](const std::string& key, const std::string& payload) {
    ASSERT_TRUE(publish_file(path, encode_entry({"family", key, payload, to_json(family)})));
  };
  write(family.head.key.text(), to_json(head));
  const Lookup<FamilyRecord> read = read_family(path, dir_.path());
  EXPECT_EQ(read.reason, MissReason::corrupt);
  EXPECT_THAT(read.detail, HasSubstr("the head does not belong to the evidence"));
  write(sample_family(64).head.key.text(), to_json(family.head));
  EXPECT_EQ(read_family(path, dir_.path()).reason, MissReason::key_mismatch);
  EXPECT_TRUE(store_.families(sample_key(1)).empty());
}

TEST_F(RecordStoreTest, ALookupDoesNotReadTheEvidenceOfAFamily) {
  const fs::path path = must(store_.put(sample_family(8192)));
  std::string bytes = *read_file(path);
  bytes.back() ^= 1;
  ASSERT_TRUE(publish_file(path, bytes));
  EXPECT_EQ(store_.families(sample_key(1)).size(), 1U);
  EXPECT_EQ(read_family(path).reason, MissReason::corrupt);
}

TEST_F(RecordStoreTest, AFamilyThatWouldNotReadBackIsRefused) {
  FamilyRecord family = sample_family(8192);
  family.matrix[1].spread = std::numeric_limits<double>::infinity();
  EXPECT_THAT(store_.put(family),
              Fails(ErrorCode::invalid_argument, HasSubstr("matrix[1].spread")));
  EXPECT_TRUE(store_.list_families().empty());
}

}  // namespace
}  // namespace kernwright
