#include "cache/stores/lookup_log.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "support/files.h"
#include "tests/cache/samples.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

class LookupLogTest : public ::testing::Test {
 protected:
  void miss(int m, Match match = Match::predicted, MissReason reason = MissReason::absent) {
    ASSERT_TRUE(log_.append({sample_key(m), match, reason, "2026-11-22T10:00:00Z"}));
  }
  ScopedTempDir dir_;
  LookupLog log_ = LookupLog::of_misses(dir_ / "cache");
};

TEST_F(LookupLogTest, CountsByKeyTheMostFrequentFirst) {
  EXPECT_TRUE(log_.counts()->empty());
  miss(1);
  miss(2);
  miss(2, Match::bucket, MissReason::other_shape);
  const std::vector<LoggedLookup> counts = *log_.counts();
  ASSERT_EQ(counts.size(), 2U);
  EXPECT_EQ(counts[0].key, sample_key(2));
  EXPECT_EQ(counts[0].count, 2);
  EXPECT_EQ(counts[0].match, Match::bucket);
  EXPECT_EQ(counts[0].reason, MissReason::other_shape);
  EXPECT_EQ(counts[1].count, 1);
}

TEST_F(LookupLogTest, ALineMayStandForSeveralLookups) {
  miss(1);
  ASSERT_TRUE(log_.append({sample_key(1), Match::exact, MissReason::none, "later", 5}));
  const std::vector<LoggedLookup> counts = *log_.counts();
  ASSERT_EQ(counts.size(), 1U);
  EXPECT_EQ(counts[0].count, 6);
  EXPECT_EQ(counts[0].match, Match::exact) << "the latest";
}

TEST_F(LookupLogTest, AFileOfSomethingElseIsNotAppendedTo) {
  EXPECT_TRUE(log_.check()) << "it is not there yet";
  miss(1);
  EXPECT_TRUE(log_.check());
  const LookupLog other(dir_ / "worklist.json");
  std::ofstream(other.path()) << R"({"problems": []})" << '\n';
  ASSERT_FALSE(other.check());
  EXPECT_EQ(other.check().error().code, ErrorCode::invalid_argument);
}

TEST_F(LookupLogTest, TornLinesAreLeftOut) {
  miss(1);
  std::ofstream(log_.path(), std::ios::app) << "{\"problem\": \"mat\n";
  miss(1);
  ASSERT_EQ(log_.counts()->size(), 1U);
  EXPECT_EQ(log_.counts()->at(0).count, 2);
  std::size_t unread = 0;
  EXPECT_TRUE(log_.counts(&unread));
  EXPECT_EQ(unread, 1U);
}

TEST_F(LookupLogTest, AFullLogTakesNoMore) {
  miss(1);
  std::filesystem::resize_file(log_.path(), 16 << 20);
  EXPECT_FALSE(log_.append({sample_key(1), Match::none, {}, ""}));
  EXPECT_EQ(std::filesystem::file_size(log_.path()), std::uintmax_t{16} << 20);
}

TEST_F(LookupLogTest, WhatIsNoFileOfTheCacheIsNeitherReadNorAppendedTo) {
  const std::filesystem::path folder = log_.path().parent_path();
  std::filesystem::create_directories(folder);
  const auto refused = [this] {
    return !log_.append({sample_key(1), Match::none, {}, ""}) && !log_.counts();
  };
  ASSERT_EQ(::mkfifo(log_.path().c_str(), 0600), 0);
  EXPECT_TRUE(refused()) << "a pipe";
  std::filesystem::remove(log_.path());
  std::ofstream(dir_ / "others") << "theirs\n";
  std::filesystem::create_symlink(dir_ / "others", log_.path());
  EXPECT_TRUE(refused()) << "a link";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(dir_ / "elsewhere");
  std::filesystem::create_directory_symlink(dir_ / "elsewhere", folder);
  EXPECT_FALSE(log_.append({sample_key(1), Match::none, {}, ""})) << "below a link";
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "elsewhere"));
  EXPECT_EQ(*read_file(dir_ / "others"), "theirs\n");
}

TEST(LookupLogOfNoDirectoryTest, SaysSo) {
  EXPECT_FALSE(
      LookupLog::of_misses("/dev/null/kernwright").append({sample_key(1), Match::none, {}, ""}));
}

}  // namespace
}  // namespace kernwright
