#include "cache/stores/artifact_store.h"

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>

#include "cache/entries/entry_file.h"
#include "support/files.h"
#include "support/hash.h"
#include "tests/cache/samples.h"
#include "tests/results.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

class ArtifactStoreTest : public ::testing::Test {
 protected:
  ScopedTempDir dir_;
  ArtifactStore store_{dir_.path()};
  std::string digest_ = digest_of("request").hex();
};

TEST_F(ArtifactStoreTest, EveryFieldComesBack) {
  CompiledKernel kernel = sample_kernel("a");
  kernel.output = OutputKind::lto_ir;
  ASSERT_TRUE(store_.put(digest_, kernel));
  const Lookup<CompiledKernel> back = store_.get(digest_);
  ASSERT_TRUE(back) << back.detail;
  EXPECT_EQ(back.value->bits, kernel.bits);
  EXPECT_EQ(back.value->output, OutputKind::lto_ir);
  EXPECT_EQ(back.value->target, kernel.target);
  ASSERT_EQ(back.value->entries.size(), 2U);
  EXPECT_EQ(back.value->entries[0].name, "main_loop");
  EXPECT_EQ(back.value->entries[0].resources, kernel.entries[0].resources);
  EXPECT_EQ(back.value->warnings, kernel.warnings);
  EXPECT_EQ(back.value->log, kernel.log);
  EXPECT_EQ(back.value->seconds, kernel.seconds);
}

TEST_F(ArtifactStoreTest, LiesWhereTheReadmeSays) {
  ASSERT_TRUE(store_.put(digest_, sample_kernel("a")));
  EXPECT_EQ(store_.path(digest_),
            dir_.path() / "v1" / "artifacts" / digest_.substr(0, 2) / (digest_ + ".kwa"));
  EXPECT_TRUE(std::filesystem::is_regular_file(store_.path(digest_)));
}

TEST_F(ArtifactStoreTest, TheFirstWriterWins) {
  ASSERT_TRUE(store_.put(digest_, sample_kernel("first")));
  ASSERT_TRUE(store_.put(digest_, sample_kernel("second")));
  EXPECT_EQ(store_.get(digest_).value->bits, sample_kernel("first").bits);
}

TEST_F(ArtifactStoreTest, WhatIsNoDigestReachesNoPath) {
  for (const std::string& text :
       {std::string(), std::string("../../../etc/passwd"), digest_.substr(1), digest_ + "0",
        std::string(64, 'A'), std::string(62, '.') + "/x"}) {
    EXPECT_EQ(store_.get(text).reason, MissReason::absent) << text;
    EXPECT_THAT(store_.put(text, sample_kernel("a")), Fails(ErrorCode::invalid_argument)) << text;
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

TEST_F(ArtifactStoreTest, ListsDigestsSortedAndNothingElse) {
  std::vector<std::string> digests;
  for (int i = 0; i < 20; ++i) {
    digests.push_back(digest_of(std::to_string(i)).hex());
    ASSERT_TRUE(store_.put(digests.back(), sample_kernel("a")));
  }
  ASSERT_TRUE(publish_file(dir_ / "v1" / "artifacts" / "00" / "notes.kwa", "x"));
  ASSERT_TRUE(publish_file(dir_ / "v1" / "artifacts" / "stray", "x"));
  std::sort(digests.begin(), digests.end());
  EXPECT_EQ(store_.list(), digests);
}

TEST_F(ArtifactStoreTest, AnEmptyKernelIsAKernel) {
  ASSERT_TRUE(store_.put(digest_, {}));
  const Lookup<CompiledKernel> back = store_.get(digest_);
  ASSERT_TRUE(back) << back.detail;
  EXPECT_TRUE(back.value->bits.empty());
}

TEST_F(ArtifactStoreTest, ALogThatIsNoUtf8IsStored) {
  CompiledKernel kernel = sample_kernel("a");
  kernel.log = "caf\xe9";
  ASSERT_TRUE(store_.put(digest_, kernel));
  EXPECT_EQ(store_.get(digest_).value->log, "caf\xef\xbf\xbd");
}

TEST_F(ArtifactStoreTest, MetadataThatDoesNotFitIsCorrupt) {
  const std::string good = encode_artifact(sample_kernel("a"));
  const std::string::size_type end = good.find('\n');
  for (const std::string& payload : std::vector<std::string>{
           std::string(), good.substr(0, end), "{}" + good.substr(end), std::string("[1]\nbits"),
           std::string(
               R"({"output":"ptx","target":"","entries":[],"warnings":[],"log":"","seconds":0})") +
               "\n"}) {
    ASSERT_TRUE(publish_file(store_.path(digest_), encode_entry({"artifact", digest_, payload})));
    EXPECT_EQ(store_.get(digest_).reason, MissReason::corrupt) << payload;
  }
}

}  // namespace
}  // namespace kernwright
