#include "cache/layers/tiered_cache.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "cache/entries/entry_file.h"
#include "cache/records/bucket.h"
#include "model/catalog/catalog.h"
#include "support/files.h"
#include "support/hash.h"
#include "tests/cache/samples.h"
#include "tests/support/faulty_files.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

/// Returns the environment that `sample_record` was made in, as today's.
TieredCache::Now made_with() { return {"nvrtc 13.0 abcd", "580.65.06", "0.1.0"}; }

std::string same_template(std::string_view) { return "template-1"; }

class TieredCacheTest : public ::testing::Test {
 protected:
  std::vector<GradedRecord> lookup(const TieredCache& cache,
                                   const TieredCache::Now& now = made_with()) {
    Answers answers = cache.lookup(sample_key(1), now, same_template);
    reason_ = answers.reason;
    return std::move(answers.records);
  }
  /// The evidence of what a lookup found.
  static TuningRecord record_of(const GradedRecord& graded) {
    return read_record(graded.file).value.value();
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
  const auto [found, reason, decisions, defects] =
      cache.lookup(record.key, GetParam().now, [](std::string_view kernel_template) {
        EXPECT_EQ(kernel_template, "matmul/persistent_wave");
        return GetParam().template_digest;
      });
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
     Match::stale_code,
     MissReason::other_compiler},
    {"Template", made_with(), "template-2", kMeasured, Match::stale_code,
     MissReason::template_changed},
    {"TemplateGone", made_with(), "", kMeasured, Match::none, MissReason::template_missing},
    {"All",
     {"nvrtc 13.1 ef01", "590.1", "0.2.0"},
     "template-2",
     kMeasured,
     Match::stale_code,
     MissReason::template_changed},
    {"AllButTemplate",
     {"nvrtc 13.1 ef01", "590.1", "0.2.0"},
     "template-1",
     kMeasured,
     Match::stale_code,
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
  for (const GradedRecord& graded : lookup(cache_)) order.push_back(record_of(graded).measured);
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
          EXPECT_EQ(record_of(found[0]).measured, first < second ? 1 : 2)
              << to_string(first) << ' ' << to_string(second) << ' ' << other_driver << other_layer;
          EXPECT_LE(found[0].head.trust, found[1].head.trust);
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
  EXPECT_EQ(found[1].match, Match::stale_code);
  EXPECT_EQ(found[2].match, Match::predicted);
}

TEST_F(TieredCacheTest, AClockThatJumpsCostsTheOrderAmongEqualsAlone) {
  TuningRecord record = sample_record(1);
  const auto put = [&](Trust trust, const char* created) {
    record.trust = trust;
    record.created = created;
    ASSERT_TRUE(cache_.put_record(record));
  };
  put(Trust::b, "2099-01-01T00:00:00Z");
  put(Trust::a, "1970-01-01T00:00:00Z");
  put(Trust::b, "2026-11-20T10:00:00Z");
  std::vector<std::string> order;
  for (const GradedRecord& found : lookup(cache_)) {
    EXPECT_EQ(found.match, Match::exact);
    order.push_back(found.head.created);
  }
  EXPECT_EQ(order, (std::vector<std::string>{"1970-01-01T00:00:00Z", "2099-01-01T00:00:00Z",
                                             "2026-11-20T10:00:00Z"}));
}

TEST_F(TieredCacheTest, WhatALaterVersionAddsToTheDirectoryCostsNothing) {
  ASSERT_TRUE(cache_.put_record(sample_record(1)));
  TuningRecord later = sample_record(1);
  later.environment.kernwright = "9.9";
  later.created = "2099-01-01T00:00:00Z";
  std::string json = to_json(later);
  json.insert(1, R"("new": {"of": [9.9]}, )");
  const fs::path folder = cache_.records().folder(later.key);
  ASSERT_TRUE(publish_file(folder / "later.kwr",
                           encode_entry({"record", later.key.text(),
                                         encode_head(head_of(later)) + "new fields", json})));
  ASSERT_TRUE(publish_file(folder / "a.new", "a file of a kind that is not known"));
  ASSERT_TRUE(publish_file(dir_ / "user" / "v2" / "records" / "x", "another layout"));
  const Answers found = cache_.lookup(later.key, made_with(), same_template);
  ASSERT_EQ(found.records.size(), 2U);
  EXPECT_EQ(found.records[0].match, Match::exact);
  EXPECT_EQ(found.records[1].match, Match::recheck);
  EXPECT_EQ(found.records[1].reason, MissReason::other_kernwright);
  EXPECT_TRUE(found.defects.empty());
}

TEST_F(TieredCacheTest, AnExactRecordOfALaterLayerBeatsASeedOfTheUsers) {
  TuningRecord seed = sample_record(1);
  seed.environment.template_digest = "template-0";
  ASSERT_TRUE(cache_.put_record(seed));
  ASSERT_TRUE(site_records_.put(sample_record(1)));
  const std::vector<GradedRecord> found = lookup(cache_);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].match, Match::exact);
  EXPECT_EQ(found[1].match, Match::stale_code);
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

/// Decisions on the candidates of `sample_record(1)`: its winner, its runner-up, another one.
class OverridesTest : public TieredCacheTest {
 protected:
  OverridesTest() {
    record_.runners_up.front().choice.kernel_template = record_.winner.choice.kernel_template;
    second_ = record_.runners_up.front();
    EXPECT_TRUE(cache_.put_record(record_));
  }

  static Override decision(OverrideAction action, const RankedConfiguration& of) {
    Override made{.key = sample_key(1), .action = action};
    made.choice = of.choice;
    return made;
  }
  void decide(OverrideAction action, const RankedConfiguration& of) {
    ASSERT_TRUE(cache_.put_override(decision(action, of)));
  }
  void decide_in_site(OverrideAction action, const RankedConfiguration& of) {
    ASSERT_TRUE(site_records_.put(decision(action, of)));
  }

  TuningRecord record_ = sample_record(1);
  RankedConfiguration second_;
};

TEST_F(OverridesTest, ARunnerUpOfAnotherTemplateIsServedWithoutItsBits) {
  decide(OverrideAction::ban, record_.winner);
  decide(OverrideAction::ban, second_);
  const std::vector<GradedRecord> found = lookup(cache_);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].head.winner.choice.kernel_template, "matmul/tiled");
  EXPECT_EQ(found[0].head.winner.artifact, "") << "it is compiled of today's text";
}

TEST_F(OverridesTest, OfABannedWinnerTheRunnerUpIsServed) {
  decide(OverrideAction::ban, record_.winner);
  const std::vector<GradedRecord> found = lookup(cache_);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].head.winner.choice.configuration, second_.choice.configuration);
  EXPECT_EQ(found[0].head.winner.artifact, second_.artifact);
  EXPECT_EQ(found[0].head.winner.best_path, std::nullopt) << "the winner's is not its own";
  EXPECT_EQ(found[0].match, Match::recheck);
  EXPECT_EQ(found[0].reason, MissReason::banned);
}

TEST_F(OverridesTest, WhereAllAreBannedNothingIsServed) {
  decide(OverrideAction::ban, record_.winner);
  for (const RankedConfiguration& ranked : record_.runners_up) {
    decide(OverrideAction::ban, ranked);
  }
  EXPECT_TRUE(lookup(cache_).empty());
  EXPECT_EQ(reason_, MissReason::banned);
  decide(OverrideAction::lift, record_.winner);
  ASSERT_EQ(lookup(cache_).size(), 1U);
  EXPECT_EQ(lookup(cache_)[0].match, Match::exact);
}

TEST_F(OverridesTest, APinStandsBeforeWhatIsMeasuredFaster) {
  decide(OverrideAction::pin, second_);
  const std::vector<GradedRecord> found = lookup(cache_);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].head.winner.artifact, second_.artifact);
  EXPECT_EQ(found[0].match, Match::exact);
}

TEST_F(OverridesTest, APinThatNoRecordKnowsIsASeed) {
  RankedConfiguration unknown = second_;
  unknown.choice.configuration = Configuration({{"BM", 17}});
  decide(OverrideAction::pin, unknown);
  const std::vector<GradedRecord> found = lookup(cache_);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].head.winner.choice.configuration, unknown.choice.configuration);
  EXPECT_EQ(found[0].match, Match::stale_code);
  EXPECT_EQ(found[0].reason, MissReason::pinned);
  EXPECT_EQ(found[1].match, Match::exact);
}

TEST_F(OverridesTest, APinWhoseTemplateIsGoneIsADefectAndTheRestIsServed) {
  RankedConfiguration gone = second_;
  gone.choice.kernel_template = "matmul/none";
  decide(OverrideAction::pin, gone);
  const Answers found = cache_.lookup(sample_key(1), made_with(), [](std::string_view name) {
    return std::string(name == "matmul/none" ? "" : "template-1");
  });
  ASSERT_EQ(found.defects.size(), 1U);
  EXPECT_EQ(found.defects[0],
            "the pin of " + gone.choice.id() + " is not served: there is no such template");
  ASSERT_EQ(found.records.size(), 1U);
  EXPECT_EQ(found.records[0].match, Match::exact);
}

TEST_F(OverridesTest, TheUsersLayerOutranksTheOthers) {
  decide_in_site(OverrideAction::ban, record_.winner);
  EXPECT_EQ(lookup(cache_)[0].reason, MissReason::banned);
  decide(OverrideAction::lift, record_.winner);
  EXPECT_EQ(lookup(cache_)[0].match, Match::exact);
  decide_in_site(OverrideAction::ban, record_.winner);
  EXPECT_EQ(lookup(cache_)[0].match, Match::exact) << "a later ban of a lower layer";
}

TEST_F(OverridesTest, OfPinAndBanTheLaterHolds) {
  decide(OverrideAction::pin, second_);
  decide(OverrideAction::ban, second_);
  EXPECT_EQ(lookup(cache_)[0].head.winner.artifact, record_.winner.artifact);
  decide(OverrideAction::pin, second_);
  EXPECT_EQ(lookup(cache_)[0].head.winner.artifact, second_.artifact);
}

class BucketTest : public TieredCacheTest {
 protected:
  std::vector<std::string> near(int m, const Decisions& decisions = {}) const {
    std::vector<std::string> found;
    const BoundProblem problem =
        catalog_->bind(Problem::parse(sample_key(m).problem).value()).value();
    for (const GradedRecord& graded :
         cache_.near(sample_key(m), problem, made_with(), same_template, decisions)) {
      EXPECT_EQ(graded.match, Match::bucket);
      EXPECT_EQ(graded.reason, MissReason::other_shape);
      found.push_back(graded.head.key.problem);
    }
    return found;
  }
  std::shared_ptr<const Catalog> catalog_ = Catalog::load({}).value();
};

TEST_F(BucketTest, ADimWithADefaultCountsWhetherGivenOrNot) {
  const auto bound = [&](std::string_view text) {
    return catalog_->bind(Problem::parse(text).value()).value();
  };
  const auto distance = [&](std::string_view a, std::string_view b) {
    return bucket_distance(bound(a), Problem::parse(b).value());
  };
  const std::string_view plain = "matmul m=300 n=512 k=64 dtype=bf16";
  const std::string_view wider = "matmul m=360 n=512 k=64 ldd=1024 dtype=bf16";
  EXPECT_EQ(distance(plain, "matmul m=360 n=512 k=64 dtype=bf16"), 1.2);
  EXPECT_EQ(distance("matmul m=300 n=512 k=64 ldd=1024 dtype=bf16", wider), 1.2);
  EXPECT_EQ(distance(plain, wider), std::nullopt);
  EXPECT_EQ(distance(plain, "matmul m=360 n=512 k=64 batch=2 dtype=bf16"), std::nullopt);
  EXPECT_EQ(distance(plain, "matmul m=300 n=512 dtype=bf16"), std::nullopt);
  EXPECT_EQ(bucket_pattern(bound(wider)).text, "matmul m=? n=512 k=64 ldd=1024 dtype=bf16");
}

TEST_F(BucketTest, TheNearestOfTheFamilyWithinTheDistanceComesFirst) {
  for (const int m : {64, 128, 129, 2048, 4096, 5000}) {
    ASSERT_TRUE(cache_.put_record(sample_record(m)));
  }
  const auto problem = [](int m) { return sample_key(m).problem; };
  EXPECT_EQ(near(4500), (std::vector<std::string>{problem(4096), problem(5000)}));
  EXPECT_EQ(near(3000), (std::vector<std::string>{problem(4096), problem(2048)}));
  EXPECT_EQ(near(100), (std::vector<std::string>{problem(128)})) << "64 is of another family";
  EXPECT_TRUE(near(1024).empty()) << "beyond the distance";
  EXPECT_TRUE(near(4).empty());
}

TEST_F(BucketTest, ReadsNoMoreThanTheNearestOfMany) {
  for (int m = 1000; m < 1200; ++m) ASSERT_TRUE(cache_.put_record(sample_record(m)));
  const FaultyFiles counted(dir_.path().native(), FaultyFiles::Call::open_to_read, 0);
  const std::vector<std::string> found = near(1250);
  EXPECT_LE(FaultyFiles::failed(), 20);
  ASSERT_GE(found.size(), 8U);
  EXPECT_EQ(found[0], sample_key(1199).problem);
  EXPECT_EQ(found[7], sample_key(1192).problem);
}

TEST_F(BucketTest, OnlyWhatWasMeasuredOfTodaysCodeAnswers) {
  TuningRecord predicted = sample_record(4096);
  predicted.grade = kPredicted;
  TuningRecord seed = sample_record(4097);
  seed.environment.template_digest = "template-0";
  ASSERT_TRUE(cache_.put_record(predicted));
  ASSERT_TRUE(cache_.put_record(seed));
  EXPECT_TRUE(near(4500).empty());
}

TEST_F(BucketTest, WhatIsBannedForTheShapeAskedForDoesNotAnswer) {
  const TuningRecord record = sample_record(4096);
  ASSERT_TRUE(site_records_.put(record));
  EXPECT_EQ(near(4500).size(), 1U);
  Override ban{.key = sample_key(4500), .action = OverrideAction::ban};
  ban.choice = record.winner.choice;
  Decisions decisions;
  decisions.add(std::vector<Override>{ban});
  EXPECT_TRUE(near(4500, decisions).empty());
}

}  // namespace
}  // namespace kernwright
