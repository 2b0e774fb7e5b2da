// The contract of every store of the cache, whatever it holds.

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <gtest/gtest.h>
#include <sched.h>
#include <string>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "cache/entries/entry_file.h"
#include "cache/stores/artifact_store.h"
#include "cache/stores/record_store.h"
#include "support/files.h"
#include "support/hash.h"
#include "tests/cache/child_process.h"
#include "tests/cache/samples.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

constexpr int kNoMount = 77;  // exit code of a child that could not mount

/// A store of artifacts, numbered.
class Artifacts {
 public:
  explicit Artifacts(fs::path root) : store_(std::move(root)) {}

  bool put(int number) const {
    return store_.put(digest(number), sample_kernel(digest(number))).has_value();
  }
  /// Returns `none` if the whole content was read back.
  MissReason get(int number) const {
    const auto kernel = store_.get(digest(number));
    if (!kernel) return kernel.reason;
    const std::string expected = encode_artifact(sample_kernel(digest(number)));
    return encode_artifact(*kernel.value) == expected ? MissReason::none : MissReason::corrupt;
  }
  fs::path file(int number) const { return store_.path(digest(number)); }
  std::size_t listed() const { return store_.list().size(); }

 private:
  static std::string digest(int number) { return digest_of(std::to_string(number)).hex(); }
  ArtifactStore store_;
};

/// Returns the one file below `root` whose path has `shape`, with "_" for '=', '-' and ' '.
fs::path file_of(const fs::path& root, const std::string& shape) {
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    std::string name = entry.path().native();
    for (char& c : name) c = c == '=' || c == '-' || c == ' ' ? '_' : c;
    if (entry.is_regular_file() && name.find(shape) != std::string::npos) return entry.path();
  }
  return {};
}

/// A store of records, numbered by the m of their problem.
class Records {
 public:
  explicit Records(const fs::path& root) : root_(root), store_(root) {}

  bool put(int number) const { return store_.put(sample_record(number)).has_value(); }
  MissReason get(int number) const {
    const RecordStore::Found found = store_.get(sample_key(number));
    if (found.runs.empty()) return found.reason;
    const Lookup<TuningRecord> record = read_record(found.runs[0].file);
    if (!record) return record.reason;
    const std::string expected = to_json(sample_record(number));
    return to_json(*record.value) == expected ? MissReason::none : MissReason::corrupt;
  }
  fs::path file(int number) const { return file_of(root_, concat("m_", number, "_")); }
  std::size_t listed() const {
    const std::vector<RecordStore::Listed> all = store_.list();
    return static_cast<std::size_t>(std::count_if(
        all.begin(), all.end(), [](const auto& one) { return one.record.value.has_value(); }));
  }

 private:
  fs::path root_;
  RecordStore store_;
};

/// A store of families, numbered by their largest m.
class Families {
 public:
  explicit Families(const fs::path& root) : root_(root), store_(root) {}

  bool put(int number) const { return store_.put(sample_family(number)).has_value(); }
  MissReason get(int number) const {
    MissReason reason = MissReason::absent;
    const fs::path folder = store_.folder(sample_family(number).head.key);
    for (const RecordStore::ListedFamily& one : store_.list_families()) {
      if (one.path.parent_path() != folder) continue;
      if (!one.family) reason = one.family.reason;
      if (one.family && *one.family.value == sample_family(number)) return MissReason::none;
    }
    return reason;
  }
  fs::path file(int number) const { return file_of(root_, concat("m_1__", number, "_")); }
  std::size_t listed() const { return store_.families(sample_key(1)).size(); }

 private:
  fs::path root_;
  RecordStore store_;
};

template <typename Store>
class StoreContractTest : public ::testing::Test {
 protected:
  ScopedTempDir dir_;
  fs::path root_ = dir_ / "cache";
  Store store_{root_};
};

using Stores = ::testing::Types<Artifacts, Records, Families>;
TYPED_TEST_SUITE(StoreContractTest, Stores);

TYPED_TEST(StoreContractTest, WhatWasPutIsFound) {
  EXPECT_EQ(this->store_.get(1), MissReason::absent);
  ASSERT_TRUE(this->store_.put(1));
  EXPECT_EQ(this->store_.get(1), MissReason::none);
  EXPECT_EQ(this->store_.get(2), MissReason::absent);
  EXPECT_EQ(TypeParam(this->root_).get(1), MissReason::none);
  EXPECT_EQ(this->store_.listed(), 1U);
}

TYPED_TEST(StoreContractTest, ALookupCreatesNothing) {
  EXPECT_EQ(this->store_.get(1), MissReason::absent);
  EXPECT_EQ(this->store_.listed(), 0U);
  EXPECT_FALSE(fs::exists(this->root_));
}

TYPED_TEST(StoreContractTest, EveryFlippedByteIsAMiss) {
  ASSERT_TRUE(this->store_.put(1));
  const fs::path file = this->store_.file(1);
  const std::string bytes = *read_file(file);
  const auto write = [&file](std::size_t at, int byte) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(static_cast<char>(byte));
  };
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    write(at, bytes[at] ^ (1 << (at % 8)));
    const MissReason reason = this->store_.get(1);
    write(at, bytes[at]);
    const bool in_version = at >= 8 && at < 12;
    ASSERT_EQ(reason, in_version ? MissReason::other_version : MissReason::corrupt) << at;
  }
  EXPECT_EQ(this->store_.get(1), MissReason::none);
}

TYPED_TEST(StoreContractTest, EveryTruncationIsAMiss) {
  ASSERT_TRUE(this->store_.put(1));
  const fs::path file = this->store_.file(1);
  for (std::uintmax_t length = fs::file_size(file); length-- > 0;) {
    fs::resize_file(file, length);
    ASSERT_EQ(this->store_.get(1), MissReason::corrupt) << length;
  }
}

TYPED_TEST(StoreContractTest, ADefectiveFileDoesNotStopThePut) {
  ASSERT_TRUE(this->store_.put(1));
  fs::resize_file(this->store_.file(1), 10);
  ASSERT_EQ(this->store_.get(1), MissReason::corrupt);
  ASSERT_TRUE(this->store_.put(1));
  EXPECT_EQ(this->store_.get(1), MissReason::none);
}

TYPED_TEST(StoreContractTest, AFileUnderAnotherNameIsAMiss) {
  ASSERT_TRUE(this->store_.put(1));
  ASSERT_TRUE(this->store_.put(2));
  fs::copy_file(this->store_.file(1), this->store_.file(2), fs::copy_options::overwrite_existing);
  EXPECT_EQ(this->store_.get(1), MissReason::none);
  EXPECT_EQ(this->store_.get(2), MissReason::key_mismatch);
}

TYPED_TEST(StoreContractTest, AnotherKindOfEntryIsAMiss) {
  ASSERT_TRUE(this->store_.put(1));
  ASSERT_TRUE(publish_file(this->store_.file(1), encode_entry({"other", "key", "payload"})));
  EXPECT_EQ(this->store_.get(1), MissReason::corrupt);
}

TYPED_TEST(StoreContractTest, WhatAKilledWriterLeftIsNoEntry) {
  ASSERT_TRUE(this->store_.put(1));
  const fs::path file = this->store_.file(1);
  fs::copy_file(file, file.parent_path() / ("." + file.filename().native() + ".1234-1.tmp"));
  EXPECT_EQ(this->store_.get(1), MissReason::none);
  EXPECT_EQ(this->store_.listed(), 1U);
}

TYPED_TEST(StoreContractTest, RacingThreadsAndProcessesNeverShowAPart) {
  constexpr int kRounds = 50;
  const auto put_all = [this] {
    int failures = 0;
    for (int round = 0; round < kRounds; ++round) failures += this->store_.put(round % 3) ? 0 : 1;
    return failures;
  };
  const std::array<pid_t, 2> children{start_child(put_all), start_child(put_all)};
  std::array<std::future<int>, 2> threads{std::async(std::launch::async, put_all),
                                          std::async(std::launch::async, put_all)};
  for (int round = 0; round < kRounds; ++round) {
    const MissReason reason = this->store_.get(round % 3);
    EXPECT_TRUE(reason == MissReason::none || reason == MissReason::absent) << to_string(reason);
  }
  for (std::future<int>& thread : threads) EXPECT_EQ(thread.get(), 0);
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
  for (int number = 0; number < 3; ++number) EXPECT_EQ(this->store_.get(number), MissReason::none);
  for (const auto& entry : fs::recursive_directory_iterator(this->root_)) {
    EXPECT_NE(entry.path().extension(), ".tmp");
  }
}

TYPED_TEST(StoreContractTest, ARootBelowAFileCostsTheCachingOnly) {
  ASSERT_TRUE(publish_file(this->dir_ / "file", "x"));
  const TypeParam store(this->dir_ / "file");
  EXPECT_FALSE(store.put(1));
  EXPECT_NE(store.get(1), MissReason::none);
  EXPECT_EQ(store.listed(), 0U);
}

TYPED_TEST(StoreContractTest, AReadOnlyRootIsReadAndNotWritten) {
  ASSERT_TRUE(this->store_.put(1));
  const int code = in_child([this] {
    fs::permissions(this->dir_.path(), fs::perms(0755));
    for (const auto& entry : fs::recursive_directory_iterator(this->dir_.path())) {
      fs::permissions(entry.path(), fs::perms(entry.is_directory() ? 0555 : 0444));
    }
    // Permissions do not bind root.
    if (::geteuid() == 0 && ::setuid(65534) != 0) return 1;
    if (this->store_.get(1) != MissReason::none) return 2;
    if (this->store_.put(2)) return 3;
    if (this->store_.get(2) != MissReason::absent) return 4;
    return 0;
  });
  EXPECT_EQ(code, 0);
  for (const auto& entry : fs::recursive_directory_iterator(this->dir_.path())) {
    if (entry.is_directory()) fs::permissions(entry.path(), fs::perms(0755));
  }
}

TYPED_TEST(StoreContractTest, AnUnreadableFileIsAMiss) {
  ASSERT_TRUE(this->store_.put(1));
  const int code = in_child([this] {
    fs::permissions(this->dir_.path(), fs::perms(0755));
    fs::permissions(this->store_.file(1), fs::perms(0));
    if (::geteuid() == 0 && ::setuid(65534) != 0) return 1;
    return this->store_.get(1) == MissReason::unreadable ? 0 : 2;
  });
  EXPECT_EQ(code, 0);
}

// A write that fails half way, as on a full disk, without needing one.
TYPED_TEST(StoreContractTest, AWriteThatFailsHalfWayLeavesNothing) {
  ASSERT_TRUE(this->store_.put(1));
  const int code = in_child([this] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100, 100};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    if (this->store_.put(2)) return 2;
    return this->store_.get(2) == MissReason::absent ? 0 : 3;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(this->store_.get(1), MissReason::none);
  EXPECT_EQ(this->store_.listed(), 1U);
  for (const auto& entry : fs::recursive_directory_iterator(this->root_)) {
    EXPECT_NE(entry.path().extension(), ".tmp");
  }
}

TYPED_TEST(StoreContractTest, AFullDiskCostsTheCachingOnly) {
  const fs::path disk = this->dir_ / "disk";
  fs::create_directory(disk);
  const int code = in_child([&disk] {
    // A mount of this process alone: in its own namespaces no privilege is needed.
    const int flags = ::geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER;
    if (::unshare(flags) != 0) return kNoMount;
    ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0) return kNoMount;
    const TypeParam store(disk);
    int stored = 0;
    while (stored < 1000 && store.put(stored)) ++stored;
    if (stored == 0 || stored == 1000) return 1;
    for (int number = 0; number < stored; ++number) {
      if (store.get(number) != MissReason::none) return 2;
    }
    return store.get(stored) == MissReason::absent ? 0 : 3;
  });
  if (code == kNoMount) GTEST_SKIP() << "no tmpfs can be mounted here";
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace kernwright
