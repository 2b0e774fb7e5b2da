#include "cache/miss_log.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "tests/cache/samples.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

class MissLogTest : public ::testing::Test {
 protected:
  void miss(int m, Match match = Match::predicted, MissReason reason = MissReason::absent) {
    ASSERT_TRUE(log_.append({sample_key(m), match, reason, "2026-11-22T10:00:00Z"}));
  }
  ScopedTempDir dir_;
  MissLog log_{dir_ / "cache"};
};

TEST_F(MissLogTest, CountsByKeyTheMostFrequentFirst) {
  EXPECT_TRUE(log_.counts().empty());
  miss(1);
  miss(2);
  miss(2, Match::bucket, MissReason::other_shape);
  const std::vector<MissCount> counts = log_.counts();
  ASSERT_EQ(counts.size(), 2U);
  EXPECT_EQ(counts[0].latest.key, sample_key(2));
  EXPECT_EQ(counts[0].count, 2);
  EXPECT_EQ(counts[0].latest.match, Match::bucket);
  EXPECT_EQ(counts[0].latest.reason, MissReason::other_shape);
  EXPECT_EQ(counts[1].count, 1);
}

TEST_F(MissLogTest, TornLinesAreLeftOut) {
  miss(1);
  std::ofstream(log_.path(), std::ios::app) << "{\"problem\": \"mat\n";
  miss(1);
  ASSERT_EQ(log_.counts().size(), 1U);
  EXPECT_EQ(log_.counts()[0].count, 2);
}

TEST_F(MissLogTest, AFullLogTakesNoMore) {
  miss(1);
  std::filesystem::resize_file(log_.path(), 16 << 20);
  miss(1);
  EXPECT_EQ(std::filesystem::file_size(log_.path()), std::uintmax_t{16} << 20);
}

TEST(MissLogOfNoDirectoryTest, SaysSo) {
  EXPECT_FALSE(MissLog("/dev/null/kernwright").append({sample_key(1), Match::none, {}, ""}));
}

}  // namespace
}  // namespace kernwright
