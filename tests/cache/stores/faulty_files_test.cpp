// A cache on a file system that fails or is slow: a miss and a word about it, never more.

#include "tests/support/faulty_files.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <string>

#include "cache/layers/tiered_cache.h"
#include "cache/stores/lookup_log.h"
#include "support/hash.h"
#include "tests/cache/samples.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

using Call = FaultyFiles::Call;

/// A layer that fails, the user's own, before one that is in order.
class FaultyFilesTest : public ::testing::TestWithParam<int> {
 protected:
  FaultyFilesTest() {
    const TieredCache site(dir_ / "site");
    EXPECT_TRUE(site.put_record(sample_record(1)));
    EXPECT_TRUE(site.put_artifact(digest_of("x").hex(), sample_kernel("x")));
    EXPECT_TRUE(cache_.put_record(sample_record(1)));
    EXPECT_TRUE(cache_.put_artifact(digest_of("x").hex(), sample_kernel("x")));
  }
  Answers lookup() const {
    return cache_.lookup(sample_key(1), {"nvrtc 13.0 abcd", "580.65.06", "0.1.0"},
                         [](std::string_view) { return std::string("template-1"); });
  }
  std::string user() const { return (dir_ / "user").native(); }

  ScopedTempDir dir_;
  TieredCache cache_{dir_ / "user", {dir_ / "site"}};
};

TEST_P(FaultyFilesTest, WhatCannotBeReadIsAMissAndTheNextLayerAnswers) {
  for (const Call call : {Call::open_to_read, Call::opendir}) {
    const FaultyFiles faulty(user(), call, GetParam());
    const Answers found = lookup();
    ASSERT_EQ(found.records.size(), 1U);
    EXPECT_EQ(found.records[0].match, Match::exact);
    EXPECT_EQ(found.records[0].file.find((dir_ / "site").native()), 0U);
    ASSERT_EQ(found.defects.size(), 1U);
    EXPECT_NE(found.defects[0].find(user()), std::string::npos) << found.defects[0];
    EXPECT_GT(FaultyFiles::failed(), 0);
    EXPECT_EQ(cache_.artifact(digest_of("x").hex()).value.has_value(), true);
  }
}

TEST_P(FaultyFilesTest, WhereAllLayersFailTheReasonSaysSo) {
  for (const Call call : {Call::open_to_read, Call::opendir, Call::fstat, Call::pread}) {
    const FaultyFiles faulty(dir_.path().native(), call, GetParam());
    const Answers found = lookup();
    EXPECT_TRUE(found.records.empty());
    EXPECT_EQ(found.reason, MissReason::unreadable);
    EXPECT_EQ(found.defects.size(), 2U);
    if (call != Call::opendir) {
      EXPECT_EQ(cache_.artifact(digest_of("x").hex()).reason, MissReason::unreadable);
    }
  }
}

TEST_P(FaultyFilesTest, WhatCannotBeWrittenIsAnErrorAndLeavesNothing) {
  for (const Call call : {Call::open_to_write, Call::write, Call::rename}) {
    {
      const FaultyFiles faulty(user(), call, GetParam());
      const auto record = cache_.put_record(sample_record(2));
      ASSERT_FALSE(record);
      EXPECT_EQ(record.error().code, ErrorCode::io);
      EXPECT_FALSE(cache_.put_artifact(digest_of("y").hex(), sample_kernel("y")));
      if (call != Call::rename) {
        EXPECT_FALSE(
            LookupLog::of_misses(cache_.root()).append({sample_key(2), Match::none, {}, ""}));
      }
    }
    EXPECT_EQ(cache_.records().get(sample_key(2)).reason, MissReason::absent);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_.path())) {
      EXPECT_NE(entry.path().extension(), ".tmp");
    }
  }
  EXPECT_TRUE(cache_.put_record(sample_record(2))) << "it is in order again";
}

INSTANTIATE_TEST_SUITE_P(Errors, FaultyFilesTest,
                         ::testing::Values(EACCES, ESTALE, EIO, ENOSPC, EROFS, EDQUOT),
                         [](const auto& param) { return concat("Errno", param.param); });

TEST(SlowFilesTest, CostTimeAndNothingElse) {
  const ScopedTempDir dir;
  const TieredCache cache(dir.path());
  ASSERT_TRUE(cache.put_record(sample_record(1)));
  const FaultyFiles slow(dir.path().native(), Call::all, 0, std::chrono::milliseconds(20));
  EXPECT_EQ(cache.records().get(sample_key(1)).runs.size(), 1U);
  EXPECT_TRUE(cache.put_record(sample_record(2)));
  EXPECT_GT(FaultyFiles::failed(), 5);
  EXPECT_LT(FaultyFiles::failed(), 500) << "each costs 20 ms";
}

}  // namespace
}  // namespace kernwright
