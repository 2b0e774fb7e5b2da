#include "cache/entries/default_root.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

#include "cache/layers/tiered_cache.h"
#include "support/hash.h"
#include "tests/cache/samples.h"

namespace kernwright {
namespace {

/// Sets variables for one test and puts back what they were.
class DefaultCacheRootTest : public ::testing::Test {
 protected:
  DefaultCacheRootTest() {
    for (const char* name : kNames) {
      const char* value = std::getenv(name);
      before_.push_back(value == nullptr ? std::nullopt : std::optional<std::string>(value));
      ::unsetenv(name);
    }
  }
  ~DefaultCacheRootTest() override {
    for (std::size_t i = 0; i < before_.size(); ++i) {
      before_[i] ? ::setenv(kNames[i], before_[i]->c_str(), 1) : ::unsetenv(kNames[i]);
    }
  }

  static constexpr const char* kNames[] = {"KERNWRIGHT_CACHE", "XDG_CACHE_HOME", "HOME"};
  std::vector<std::optional<std::string>> before_;
};

TEST_F(DefaultCacheRootTest, OurOwnVariableComesFirst) {
  ::setenv("HOME", "/home/someone", 1);
  EXPECT_EQ(default_cache_root(), "/home/someone/.cache/kernwright");
  ::setenv("XDG_CACHE_HOME", "/var/cache/someone", 1);
  EXPECT_EQ(default_cache_root(), "/var/cache/someone/kernwright");
  ::setenv("KERNWRIGHT_CACHE", "/fast/cache", 1);
  EXPECT_EQ(default_cache_root(), "/fast/cache");
}

TEST_F(DefaultCacheRootTest, EmptyAndRelativeVariablesAreAsUnset) {
  ::setenv("HOME", "/home/someone", 1);
  ::setenv("KERNWRIGHT_CACHE", "", 1);
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(default_cache_root(), "/home/someone/.cache/kernwright");
}

TEST_F(DefaultCacheRootTest, WithNoVariableItIsAbsolute) {
  EXPECT_TRUE(default_cache_root().is_absolute());
}

TEST_F(DefaultCacheRootTest, SignedCachesAreNamedWithColonsBetweenThem) {
  ::unsetenv("KERNWRIGHT_SIGNED_CACHES");
  EXPECT_TRUE(signed_cache_roots().empty());
  ::setenv("KERNWRIGHT_SIGNED_CACHES", ":/a long folder/b::/c", 1);
  EXPECT_EQ(signed_cache_roots(), (std::vector<std::string>{"/a long folder/b", "/c"}));
  ::unsetenv("KERNWRIGHT_SIGNED_CACHES");
}

TEST_F(DefaultCacheRootTest, APlaceThatCannotExistCostsTheCachingOnly) {
  const TieredCache cache("/dev/null/kernwright");
  EXPECT_FALSE(cache.put_record(sample_record(1)));
  EXPECT_FALSE(cache.put_artifact(digest_of("x").hex(), sample_kernel("x")));
  EXPECT_FALSE(cache.artifact(digest_of("x").hex()));
  EXPECT_TRUE(cache.records().get(sample_key(1)).runs.empty());
}

}  // namespace
}  // namespace kernwright
