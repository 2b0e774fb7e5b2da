#include "cache/tiered_cache.h"

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

#include "support/files.h"
#include "support/hash.h"
#include "tests/cache/samples.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

/// What `sample_record` was made with, as the environment of today.
TieredCache::Now made_with() { return {"nvrtc 13.0 abcd", "580.65.06", "0.1.0"}; }

std::string same_template(std::string_view) { return "template-1"; }

class TieredCacheTest : public ::testing::Test {
 protected:
  std::vector<GradedRecord> lookup(const TieredCache& cache,
                                   const TieredCache::Now& now = made_with()) {
    return cache.lookup(sample_key(1), now, same_template, reason_);
  }

  ScopedTempDir dir_;
  TieredCache cache_{dir_ / "user", {dir_ / "site"}};
  RecordStore site_records_{dir_ / "site"};
  ArtifactStore site_artifacts_{dir_ / "site"};
  MissReason reason_ = MissReason::none;
};

struct GradeCase {
  const char* name;
  TieredCache::Now now;
  std::string template_digest;
  RecordGrade grade;
  Match match;
  MissReason reason;
};

class GradeTest : public ::testing::TestWithParam<GradeCase> {};

TEST_P(GradeTest, IsThatOfTheTable) {
  const ScopedTempDir dir;
  const TieredCache cache(dir.path());
  TuningRecord record = sample_record(1);
  record.grade = GetParam().grade;
  if (record.grade == RecordGrade::predicted) record.environment.driver.clear();
  ASSERT_TRUE(cache.put_record(record));
  MissReason reason{};
  const auto found = cache.lookup(
      record.key, GetParam().now,
      [](std::string_view kernel_template) {
        EXPECT_EQ(kernel_template, "matmul/persistent_wave");
        return GetParam().template_digest;
      },
      reason);
  if (GetParam().match == Match::none) {
    EXPECT_TRUE(found.empty());
    EXPECT_EQ(reason, GetParam().reason);
    return;
  }
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(to_string(found[0].match), to_string(GetParam().match));
  EXPECT_EQ(to_string(found[0].reason), to_string(GetParam().reason));
  EXPECT_EQ(reason, MissReason::none);
}

constexpr auto kMeasured = RecordGrade::measured;
constexpr auto kPredicted = RecordGrade::predicted;
const GradeCase kGradeCases[] = {
    {"Same", made_with(), "template-1", kMeasured, Match::exact, MissReason::none},
    {"NothingKnown", {"", "", "0.1.0"}, "template-1", kMeasured, Match::exact, MissReason::none},
    {"Driver",
     {made_with().compiler, "590.1", "0.1.0"},
     "template-1",
     kMeasured,
     Match::recheck,
     MissReason::other_driver},
    {"Kernwright",
     {made_with().compiler, made_with().driver, "0.2.0"},
     "template-1",
     kMeasured,
     Match::recheck,
     MissReason::other_kernwright},
    {"Compiler",
     {"nvrtc 13.1 ef01", made_with().driver, "0.1.0"},
     "template-1",
     kMeasured,
     Match::seed,
     MissReason::other_compiler},
    {"Template", made_with(), "template-2", kMeasured, Match::seed, MissReason::template_changed},
    {"TemplateGone", made_with(), "", kMeasured, Match::none, MissReason::template_missing},
    {"All",
     {"nvrtc 13.1 ef01", "590.1", "0.2.0"},
     "template-2",
     kMeasured,
     Match::seed,
     MissReason::template_changed},
    {"AllButTemplate",
     {"nvrtc 13.1 ef01", "590.1", "0.2.0"},
     "template-1",
     kMeasured,
     Match::seed,
     MissReason::other_compiler},
    {"DriverAndKernwright",
     {made_with().compiler, "590.1", "0.2.0"},
     "template-1",
     kMeasured,
     Match::recheck,
     MissReason::other_driver},
    {"Predicted", made_with(), "template-1", kPredicted, Match::predicted, MissReason::none},
    {"PredictedTemplate", made_with(), "template-2", kPredicted, Match::predicted,
     MissReason::template_changed},
    {"PredictedTemplateGone", made_with(), "", kPredicted, Match::none,
     MissReason::template_missing},
};
INSTANTIATE_TEST_SUITE_P(Grades, GradeTest, ::testing::ValuesIn(kGradeCases),
                         [](const auto& param) { return param.param.name; });

TEST_F(TieredCacheTest, AnEmptyCacheHasNothing) {
  EXPECT_TRUE(lookup(cache_).empty());
  EXPECT_EQ(reason_, MissReason::absent);
  EXPECT_EQ(cache_.artifact(digest_of("x").hex()).reason, MissReason::absent);
}

TEST_F(TieredCacheTest, OrdersByGradeThenMatchThenLayerThenAge) {
  const auto make = [](RecordGrade grade, std::string compiler, std::string created, int id) {
    TuningRecord record = sample_record(1);
    record.grade = grade;
    record.environment.compiler = std::move(compiler);
    record.created = std::move(created);
    record.measured = id;
    return record;
  };
  const std::string old_compiler = "nvrtc 12.8";
  ASSERT_TRUE(cache_.put_record(make(kPredicted, made_with().compiler, "2026-12-01T00:00:00Z", 5)));
  ASSERT_TRUE(cache_.put_record(make(kPredicted, old_compiler, "2026-12-02T00:00:00Z", 6)));
  ASSERT_TRUE(cache_.put_record(make(kMeasured, old_compiler, "2026-12-03T00:00:00Z", 4)));
  ASSERT_TRUE(cache_.put_record(make(kMeasured, made_with().compiler, "2026-11-01T00:00:00Z", 2)));
  ASSERT_TRUE(cache_.put_record(make(kMeasured, made_with().compiler, "2026-11-02T00:00:00Z", 1)));
  ASSERT_TRUE(site_records_.put(make(kMeasured, made_with().compiler, "2026-12-04T00:00:00Z", 3)));
  std::vector<int> order;
  for (const GradedRecord& graded : lookup(cache_)) order.push_back(graded.record.measured);
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4, 5, 6}));
}

/// Every way to have two records of different trust: the higher comes first.
TEST_F(TieredCacheTest, LessTrustNeverStandsBeforeMore) {
  for (const Trust first : {Trust::a, Trust::b, Trust::c}) {
    for (const Trust second : {Trust::a, Trust::b, Trust::c}) {
      for (const bool other_driver : {false, true}) {
        for (const bool other_layer : {false, true}) {
          const ScopedTempDir dir;
          const TieredCache cache(dir / "user", {dir / "site"});
          TuningRecord record = sample_record(1);
          record.trust = first;
          if (other_driver) record.environment.driver = "470.1";
          record.created = "2026-11-20T10:00:00Z";
          record.measured = 1;
          const RecordStore store(dir / (other_layer ? "site" : "user"));
          ASSERT_TRUE(store.put(record));
          record.environment = sample_record(1).environment;
          record.trust = second;
          record.created = "2026-11-21T10:00:00Z";
          record.measured = 2;
          ASSERT_TRUE(cache.put_record(record));
          const std::vector<GradedRecord> found = lookup(cache);
          ASSERT_EQ(found.size(), 2U);
          // A newer one of the same trust replaces the older: B overwrites B, C overwrites C.
          EXPECT_EQ(found[0].record.measured, first < second ? 1 : 2)
              << to_string(first) << ' ' << to_string(second) << ' ' << other_driver << other_layer;
          EXPECT_LE(found[0].record.trust, found[1].record.trust);
        }
      }
    }
  }
}

TEST_F(TieredCacheTest, WhatWasMeasuredOfOtherCodeComesAfterWhateverTrust) {
  TuningRecord seed = sample_record(1);
  seed.trust = Trust::a;
  seed.environment.template_digest = "template-0";
  ASSERT_TRUE(cache_.put_record(seed));
  TuningRecord exact = sample_record(1);
  exact.trust = Trust::c;
  exact.created = "2026-11-01T00:00:00Z";
  ASSERT_TRUE(cache_.put_record(exact));
  TuningRecord predicted = exact;
  predicted.trust = Trust::a;
  predicted.grade = kPredicted;
  ASSERT_TRUE(cache_.put_record(predicted));
  const std::vector<GradedRecord> found = lookup(cache_);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].match, Match::exact);
  EXPECT_EQ(found[1].match, Match::seed);
  EXPECT_EQ(found[2].match, Match::predicted);
}

TEST_F(TieredCacheTest, AnExactRecordOfALaterLayerBeatsASeedOfTheUsers) {
  TuningRecord seed = sample_record(1);
  seed.environment.template_digest = "template-0";
  ASSERT_TRUE(cache_.put_record(seed));
  ASSERT_TRUE(site_records_.put(sample_record(1)));
  const std::vector<GradedRecord> found = lookup(cache_);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].match, Match::exact);
  EXPECT_EQ(found[1].match, Match::seed);
}

TEST_F(TieredCacheTest, TheReasonIsThatOfTheFirstLayerThatHasOne) {
  const Result<fs::path> path = site_records_.put(sample_record(1));
  ASSERT_TRUE(path);
  fs::resize_file(*path, 7);
  EXPECT_TRUE(lookup(cache_).empty());
  EXPECT_EQ(reason_, MissReason::corrupt);
}

TEST_F(TieredCacheTest, ArtifactsComeFromAnyLayerAndDefectsArePassedOver) {
  const std::string digest = digest_of("x").hex();
  ASSERT_TRUE(site_artifacts_.put(digest, sample_kernel("site")));
  EXPECT_EQ(cache_.artifact(digest).value->bits, sample_kernel("site").bits);
  ASSERT_TRUE(cache_.put_artifact(digest, sample_kernel("user")));
  EXPECT_EQ(cache_.artifact(digest).value->bits, sample_kernel("user").bits);
  fs::resize_file(cache_.artifacts().path(digest), 7);
  EXPECT_EQ(cache_.artifact(digest).value->bits, sample_kernel("site").bits);
  fs::remove(site_artifacts_.path(digest));
  EXPECT_EQ(cache_.artifact(digest).reason, MissReason::corrupt);
}

TEST_F(TieredCacheTest, OnlyTheUsersLayerIsWritten) {
  ASSERT_TRUE(cache_.put_record(sample_record(1)));
  ASSERT_TRUE(cache_.put_artifact(digest_of("x").hex(), sample_kernel("x")));
  EXPECT_FALSE(fs::exists(dir_ / "site"));
  EXPECT_EQ(cache_.root(), dir_ / "user");
  EXPECT_EQ(cache_.records().list().size(), 1U);
  EXPECT_EQ(cache_.artifacts().list().size(), 1U);
}

TEST_F(TieredCacheTest, TheFirstPutMarksTheRoot) {
  EXPECT_TRUE(lookup(cache_).empty());
  EXPECT_FALSE(fs::exists(dir_ / "user"));
  ASSERT_TRUE(cache_.put_record(sample_record(1)));
  EXPECT_EQ(*read_file(dir_ / "user" / "FORMAT"), "kernwright cache, layout v1\n");
  EXPECT_EQ(read_file(dir_ / "user" / "CACHEDIR.TAG")
                ->find("Signature: 8a477f597d28d172789f06886806bc55\n"),
            0U);
}

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

TEST_F(DefaultCacheRootTest, APlaceThatCannotExistCostsTheCachingOnly) {
  const TieredCache cache("/dev/null/kernwright");
  EXPECT_FALSE(cache.put_record(sample_record(1)));
  EXPECT_FALSE(cache.put_artifact(digest_of("x").hex(), sample_kernel("x")));
  EXPECT_FALSE(cache.artifact(digest_of("x").hex()));
  EXPECT_TRUE(cache.records().get(sample_key(1)).records.empty());
}

}  // namespace
}  // namespace kernwright
