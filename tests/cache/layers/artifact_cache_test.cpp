#include "cache/layers/artifact_cache.h"

#include <atomic>
#include <cerrno>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cache/entries/key_lock.h"
#include "support/hash.h"
#include "tests/cache/samples.h"
#include "tests/support/faulty_files.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

using std::chrono::milliseconds;

class ArtifactCacheTest : public ::testing::Test {
 protected:
  /// Compiles, and counts.
  CompileResult compile() {
    ++compiles_;
    return std::make_shared<const CompiledKernel>(sample_kernel("compiled"));
  }
  CompileResult find_or_compile(ArtifactCache& cache) {
    return cache.find_or_compile(digest_, [this] { return compile(); });
  }

  const ScopedTempDir dir_;
  const std::string digest_ = digest_of("request").hex();
  std::atomic<int> compiles_{0};
};

TEST_F(ArtifactCacheTest, WhatWasCompiledIsFound) {
  ArtifactCache cache(TieredCache(dir_.path()), milliseconds(0));
  EXPECT_EQ(cache.find(digest_), nullptr);
  ASSERT_TRUE(find_or_compile(cache));
  ASSERT_NE(cache.find(digest_), nullptr);
  EXPECT_EQ(cache.find(digest_)->bits, sample_kernel("compiled").bits);
  ASSERT_TRUE(find_or_compile(cache));
  EXPECT_EQ(compiles_, 1);
}

// To wait would take longer than ctest gives a test.
TEST_F(ArtifactCacheTest, OnceItIsStoppedNobodyWaitsForAnotherProcess) {
  ArtifactCache cache(TieredCache(dir_.path()), std::chrono::hours(24));
  const KeyLock other = KeyLock::acquire(dir_.path(), digest_, milliseconds(0));
  std::thread waits([&] { EXPECT_TRUE(find_or_compile(cache)); });
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(compiles_, 0);
  cache.stop();
  waits.join();
  EXPECT_EQ(compiles_, 1);
}

TEST_F(ArtifactCacheTest, WhatDoesNotCompileIsNotKept) {
  ArtifactCache cache(TieredCache(dir_.path()), milliseconds(0));
  const auto refuse = []() -> CompileResult { return Error{ErrorCode::compile, "refused"}; };
  EXPECT_EQ(cache.find_or_compile(digest_, refuse).error().message, "refused");
  EXPECT_EQ(cache.find(digest_), nullptr);
}

TEST_F(ArtifactCacheTest, WhatAnotherLayerHasIsCopiedToTheUsersDirectory) {
  const TieredCache other(dir_ / "other");
  ASSERT_TRUE(other.put_artifact(digest_, sample_kernel("other")));
  const TieredCache user(dir_ / "user", {dir_ / "other"});
  ArtifactCache cache(user, milliseconds(0));
  EXPECT_EQ((*find_or_compile(cache))->bits, sample_kernel("other").bits);
  EXPECT_EQ(compiles_, 0);
  EXPECT_TRUE(user.artifacts().get(digest_));
}

TEST_F(ArtifactCacheTest, OfSeveralOnOneDirectoryOneCompiles) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      ArtifactCache cache(TieredCache(dir_.path()), milliseconds(60'000));
      EXPECT_TRUE(cache.find_or_compile(digest_, [this] {
        std::this_thread::sleep_for(milliseconds(50));
        return compile();
      }));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compiles_, 1);
}

TEST_F(ArtifactCacheTest, WithoutADirectoryItCompiles) {
  ArtifactCache cache(TieredCache("/dev/null/cache"), milliseconds(60'000));
  EXPECT_TRUE(find_or_compile(cache));
  EXPECT_TRUE(find_or_compile(cache));
  EXPECT_EQ(compiles_, 2);
}

TEST_F(ArtifactCacheTest, WhatCannotBeStoredIsToldOnce) {
  ArtifactCache cache(TieredCache(dir_.path()), milliseconds(0));
  {
    const FaultyFiles full(dir_.path().string(), FaultyFiles::Call::write, ENOSPC);
    EXPECT_TRUE(find_or_compile(cache));
  }
  EXPECT_NE(cache.take_failure(), "");
  EXPECT_EQ(cache.take_failure(), "");
}

}  // namespace
}  // namespace kernwright
