#include "service/answer/answer_finder.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "support/files.h"
#include "support/version.h"
#include "tests/service/site_fixture.h"

namespace kernwright {
namespace {

class AnswerFinderTest : public SiteFixture {
 protected:
  using SiteFixture::SiteFixture;

  BoundProblem bound(std::int64_t n) const { return *site_.bind(vector_add(n, DType::bf16)); }

  /// A record of the template's default for the problem, with its bits in the cache.
  TuningRecord record(const BoundProblem& problem, std::string_view name, RecordGrade grade) {
    const Candidate winner = *site_.candidate(problem, name, {});
    TuningRecord made;
    made.winner.choice = winner.choice();
    made.winner.artifact = builder_->build(winner)->digest;
    made.key = site_.key(problem);
    made.environment = finder_.environment();
    made.environment.template_digest = finder_.template_digest(name);
    made.grade = grade;
    made.trust = Trust::a;
    return made;
  }
  TuningRecord put(const BoundProblem& problem, RecordGrade grade = RecordGrade::measured) {
    TuningRecord made = record(problem, "vector_add/vectorized", grade);
    EXPECT_TRUE(site_.cache.put_record(made));
    return made;
  }

  struct Seen {
    Match match;
    bool offered;
    bool cached;        ///< its bits were stored
    std::string error;  ///< why nothing was offered
  };
  /// Goes through what answers; the offer with the number `taken`, the first is 0, is taken.
  Coverage find(const BoundProblem& problem, Match worst, AnswerFinder::Bits bits,
                std::size_t taken = 0) {
    seen_.clear();
    return finder_.find(problem, worst, bits, [&](const GradedRecord& graded, Result<Offer> offer) {
      seen_.push_back({.match = graded.match,
                       .offered = offer.has_value(),
                       .cached = offer && offer->artifact.cached,
                       .error = offer ? "" : offer.error().message});
      return offer && seen_.size() == taken + 1;
    });
  }

  const std::unique_ptr<Builder> builder_ = builder();
  const AnswerFinder finder_{site_, *builder_};
  std::vector<Seen> seen_;
};

TEST_F(AnswerFinderTest, AnEmptyCacheOffersNothing) {
  const Coverage found = find(bound(4096), Match::none, AnswerFinder::Bits::built);
  EXPECT_EQ(found.match, Match::none);
  EXPECT_EQ(found.reason, MissReason::absent);
  EXPECT_EQ(found.best, Match::none);
  EXPECT_TRUE(seen_.empty());
}

TEST_F(AnswerFinderTest, ARecordOffersItsWinnerWithTheStoredBits) {
  put(bound(4096));
  const Coverage found = find(bound(4096), Match::exact, AnswerFinder::Bits::stored);
  EXPECT_EQ(found.match, Match::exact);
  EXPECT_EQ(found.reason, MissReason::none);
  ASSERT_EQ(seen_.size(), 1U);
  EXPECT_TRUE(seen_[0].cached);
  EXPECT_EQ(world_.compiles, 1) << "to make the record";
}

TEST_F(AnswerFinderTest, WhatIsWorseThanAskedForIsNotOfferedButNamed) {
  put(bound(4096), RecordGrade::predicted);
  const Coverage found = find(bound(4096), Match::bucket, AnswerFinder::Bits::built);
  EXPECT_EQ(found.match, Match::none);
  EXPECT_EQ(found.best, Match::predicted);
  EXPECT_TRUE(seen_.empty());
}

TEST_F(AnswerFinderTest, WhatIsNotTakenIsFollowedByTheNext) {
  put(bound(4096), RecordGrade::predicted);
  put(bound(5000));
  put(bound(4096));
  const Coverage found = find(bound(4096), Match::none, AnswerFinder::Bits::built, 1);
  EXPECT_EQ(found.match, Match::predicted);
  ASSERT_EQ(seen_.size(), 2U) << "where it was measured itself, neighbours are not asked";
  EXPECT_EQ(seen_[0].match, Match::exact);
  const Coverage none = find(bound(4096), Match::none, AnswerFinder::Bits::built, 2);
  EXPECT_EQ(none.match, Match::none);
  EXPECT_EQ(none.best, Match::exact);
}

TEST_F(AnswerFinderTest, ANeighbourStandsBeforeAPrediction) {
  put(bound(4096), RecordGrade::predicted);
  put(bound(5000));
  const Coverage found = find(bound(4096), Match::none, AnswerFinder::Bits::stored, 1);
  EXPECT_EQ(found.match, Match::predicted);
  ASSERT_EQ(seen_.size(), 2U);
  EXPECT_EQ(seen_[0].match, Match::bucket);
  EXPECT_TRUE(seen_[0].cached) << "no size is compiled in";
}

// An operation whose two templates differ in whether its size is compiled in.
class ScaleTemplates {
 protected:
  ScaleTemplates() {
    write("scale/operation.json", R"json({
  "operation": "scale", "description": "y = 2 x",
  "dims": {"n": {"bind": "bucket", "edges": [], "distance": 2}},
  "dtypes": {"dtype": ["fp32"]},
  "tensors": [
    {"name": "x", "role": "in", "dtype": "dtype", "extent": ["n"]},
    {"name": "y", "role": "out", "dtype": "dtype", "extent": ["n"]}
  ],
  "inputs": {"timing": "normal", "exact": "small_integers"},
  "tolerance": {"accumulate": "fp32"},
  "flops": "n", "bytes": "8 * n",
  "example": {"n": 1024, "dtype": "fp32"},
  "reference": {
    "kernel": "scale_reference", "grid": ["ceil_div(n, 256)"], "block": ["256"],
    "arguments": [{"tensor": "x"}, {"reference": "y"}, {"magnitude": "y"}, {"int64": "n"}]
    }
    })json");
    write("scale/reference.cu", "// reference");
    for (const std::string when : {"runtime", "constant"}) {
      write("scale/" + when + "/kernel.cu", "// kernel");
      write("scale/" + when + "/manifest.json", R"json({
  "operation": "scale", "description": "one element per thread", "source": "kernel.cu",
  "arch": {"min": 80},
  "dims": {"n": ")json" + when + R"json("},
  "parameters": {"THREADS": [128, 256]}, "default": {"THREADS": 256},
  "habits": [{"rule": "n != 1150", "why": "another has always gained"}],
  "launches": [{
    "kernel": "scale", "grid": ["ceil_div(n, THREADS)"], "block": ["THREADS"],
    "arguments": [{"tensor": "x"}, {"tensor": "y"}, {"int64": "n"}]
    }]
    })json");
    }
  }

  void write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(publish_file(folder_ / name, text));
  }

  ScopedTempDir folder_;
};

class CompiledInTest : private ScaleTemplates, public AnswerFinderTest {
 protected:
  CompiledInTest() : AnswerFinderTest({folder_.path()}) {}

  BoundProblem scale(std::int64_t n) const {
    return *site_.bind(Problem::make("scale", {{"n", n}}, {{"dtype", "fp32"}}));
  }
};

TEST_F(CompiledInTest, ANeighbourThatBreaksAHabitDoesNotServe) {
  ASSERT_TRUE(site_.cache.put_record(record(scale(1000), "scale/runtime", RecordGrade::measured)));
  EXPECT_EQ(find(scale(1100), Match::none, AnswerFinder::Bits::stored).match, Match::bucket);
  const Coverage near = find(scale(1150), Match::none, AnswerFinder::Bits::stored);
  EXPECT_EQ(near.match, Match::none);
  EXPECT_EQ(near.reason, MissReason::rule_violated);
  ASSERT_TRUE(site_.cache.put_record(record(scale(1150), "scale/runtime", RecordGrade::measured)));
  EXPECT_EQ(find(scale(1150), Match::none, AnswerFinder::Bits::stored).match, Match::exact);
}

TEST_F(CompiledInTest, BitsOfANeighbourServeUnlessItsSizeIsCompiledIn) {
  for (const auto& [name, own] : {std::pair{"scale/runtime", true}, {"scale/constant", false}}) {
    const BoundProblem measured = scale(own ? 1000 : 100'000);
    const BoundProblem asked = scale(own ? 1100 : 110'000);
    ASSERT_TRUE(site_.cache.put_record(record(measured, name, RecordGrade::measured)));
    EXPECT_EQ(find(asked, Match::none, AnswerFinder::Bits::stored).match,
              own ? Match::bucket : Match::none)
        << name;
    const int compiles = world_.compiles;
    EXPECT_EQ(find(asked, Match::none, AnswerFinder::Bits::built).match, Match::bucket) << name;
    EXPECT_EQ(world_.compiles - compiles, own ? 0 : 1) << name;
  }
}

/// A template whose depth counts only if a launch starts early.
class EarlyTemplateTest : private ScaleTemplates, public AnswerFinderTest {
 protected:
  EarlyTemplateTest() : AnswerFinderTest({early_folder()}) {}

  std::filesystem::path early_folder() {
    write("scale/early/kernel.cu", "// kernel");
    write("scale/early/manifest.json", R"json({
  "operation": "scale", "description": "one element per thread", "source": "kernel.cu",
  "arch": {"min": 80},
  "dims": {"n": "runtime"},
  "parameters": {"THREADS": [128, 256], "DEPTH": {"values": [0, 1, 2], "bind": "runtime"},
                 "ROUNDS": {"values": [1, 2], "bind": "runtime"},
                 "PROGRAMMATIC": {"values": [0, 1], "bind": "runtime"}},
  "default": {"THREADS": 256, "DEPTH": 0, "ROUNDS": 1, "PROGRAMMATIC": 0},
  "rules": [{"rule": "DEPTH == 0 || PROGRAMMATIC == 1", "why": "nothing else starts early"}],
  "launches": [{
    "kernel": "scale", "grid": ["ceil_div(n, THREADS)"], "block": ["THREADS"],
    "waits": "1", "ahead": ["x"], "programmatic": "PROGRAMMATIC",
    "arguments": [{"tensor": "x"}, {"tensor": "y"}, {"int64": "n"}, {"int32": "ROUNDS"},
                  {"ahead": "DEPTH"}]
    }]
    })json");
    return folder_.path();
  }
  RankedConfiguration ranked(const BoundProblem& problem, const ParameterValues& values,
                             const char* kernel_template = "scale/early") {
    const Candidate made = *site_.candidate(problem, kernel_template, values);
    RankedConfiguration ranked;
    ranked.choice = made.choice();
    ranked.artifact = builder_->build(made)->digest;
    return ranked;
  }
};

TEST_F(EarlyTemplateTest, TheNextBestAreRunnersUpEachWithOtherEarlyArguments) {
  const BoundProblem problem =
      *site_.bind(Problem::make("scale", {{"n", 1000}}, {{"dtype", "fp32"}}));
  TuningRecord made = record(problem, "scale/early", RecordGrade::measured);
  made.runners_up = {ranked(problem, {{"PROGRAMMATIC", 1}}), ranked(problem, {{"THREADS", 128}}),
                     ranked(problem, {{"ROUNDS", 2}})};
  ASSERT_TRUE(site_.cache.put_record(made));
  GradedRecord served = finder_.look_up(problem).records.front();
  std::vector<std::string> found;
  for (const GradedRecord& record : finder_.next_best(problem, served)) {
    EXPECT_EQ(record.match, Match::exact);
    found.push_back(record.head.winner.choice.configuration.text());
    const int compiles = world_.compiles;
    EXPECT_TRUE(finder_.offer(problem, record, AnswerFinder::Bits::stored));
    EXPECT_EQ(world_.compiles, compiles);
  }
  EXPECT_EQ(found, (std::vector<std::string>{"THREADS=256 DEPTH=2 ROUNDS=1 PROGRAMMATIC=1",
                                             "THREADS=256 DEPTH=0 ROUNDS=1 PROGRAMMATIC=1",
                                             "THREADS=128 DEPTH=0 ROUNDS=1 PROGRAMMATIC=0",
                                             "THREADS=128 DEPTH=2 ROUNDS=1 PROGRAMMATIC=1",
                                             "THREADS=256 DEPTH=0 ROUNDS=2 PROGRAMMATIC=0",
                                             "THREADS=256 DEPTH=2 ROUNDS=2 PROGRAMMATIC=1",
                                             "THREADS=256 DEPTH=1 ROUNDS=1 PROGRAMMATIC=1",
                                             "THREADS=128 DEPTH=1 ROUNDS=1 PROGRAMMATIC=1",
                                             "THREADS=256 DEPTH=1 ROUNDS=2 PROGRAMMATIC=1"}))
      << "what starts early in another way alone is the same in a chain, and found when it is "
         "loaded";
  served.head.environment.template_digest = "another";
  for (const GradedRecord& record : finder_.next_best(problem, served)) {
    const Configuration& configuration = record.head.winner.choice.configuration;
    EXPECT_EQ(configuration.at("THREADS"), 256) << "from a file that was written since";
    EXPECT_EQ(configuration.at("ROUNDS"), 1);
  }
}

TEST_F(EarlyTemplateTest, RunnersUpThatReadAheadComeFirst) {
  const BoundProblem problem =
      *site_.bind(Problem::make("scale", {{"n", 1000}}, {{"dtype", "fp32"}}));
  TuningRecord made = record(problem, "scale/runtime", RecordGrade::measured);
  made.runners_up = {ranked(problem, {}, "scale/constant"), ranked(problem, {{"THREADS", 128}}),
                     ranked(problem, {})};
  ASSERT_TRUE(site_.cache.put_record(made));
  const GradedRecord served = finder_.look_up(problem).records.front();
  std::vector<std::string> templates;
  for (const GradedRecord& record : finder_.next_best(problem, served)) {
    templates.push_back(record.head.winner.choice.kernel_template);
  }
  ASSERT_GE(templates.size(), 5U);
  EXPECT_EQ(std::vector(templates.begin(), templates.begin() + 5),
            (std::vector<std::string>{"scale/early", "scale/early", "scale/early", "scale/early",
                                      "scale/constant"}));
}

TEST_F(AnswerFinderTest, LostBitsAreCompiledAgainOnlyWhereThatIsAllowed) {
  const TuningRecord made = put(bound(4096));
  std::filesystem::remove(site_.cache.artifacts().path(made.winner.artifact));
  const Coverage missing = find(bound(4096), Match::none, AnswerFinder::Bits::stored);
  EXPECT_EQ(missing.match, Match::none);
  EXPECT_EQ(missing.reason, MissReason::artifact_missing);
  ASSERT_EQ(seen_.size(), 1U);
  EXPECT_NE(seen_[0].error.find(made.winner.artifact), std::string::npos) << seen_[0].error;
  const Coverage found = find(bound(4096), Match::none, AnswerFinder::Bits::built);
  EXPECT_EQ(found.match, Match::exact);
  EXPECT_FALSE(seen_[0].cached);
  EXPECT_EQ(world_.compiles, 2);
}

TEST_F(AnswerFinderTest, WithoutAToolkitLostBitsAreNamed) {
  const TuningRecord made = put(bound(4096));
  std::filesystem::remove(site_.cache.artifacts().path(made.winner.artifact));
  world_.toolkit_missing = true;
  EXPECT_EQ(find(bound(4096), Match::none, AnswerFinder::Bits::built).reason,
            MissReason::artifact_missing);
  EXPECT_EQ(seen_[0].error, "no NVRTC here");
}

TEST_F(AnswerFinderTest, AWinnerThatIsNoCandidateHereIsNotOffered) {
  TuningRecord broken = record(bound(4096), "vector_add/vectorized", RecordGrade::measured);
  broken.winner.choice.configuration = Configuration({{"THREADS", 1024},
                                                      {"VECTORS", 8},
                                                      {"NO_ALLOCATE", 0},
                                                      {"STREAMING", 1},
                                                      {"BLOCKS_PER_SM", 0},
                                                      {"PROGRAMMATIC", 0}});
  ASSERT_TRUE(site_.cache.put_record(broken));
  const Coverage found = find(bound(4096), Match::none, AnswerFinder::Bits::built);
  EXPECT_EQ(found.match, Match::none);
  EXPECT_EQ(found.reason, MissReason::rule_violated);
  ASSERT_EQ(seen_.size(), 1U);
  EXPECT_NE(seen_[0].error.find("8192 > 4096"), std::string::npos) << seen_[0].error;
}

TEST_F(AnswerFinderTest, AWinnerWhoseTemplateIsGoneIsNotOffered) {
  MissReason refused = MissReason::none;
  const Result<Candidate> none =
      finder_.candidate(bound(4096), {.choice = {"vector_add/none", {}}, .artifact = {}}, refused);
  EXPECT_FALSE(none);
  EXPECT_EQ(refused, MissReason::template_missing);
  TuningRecord gone = record(bound(4096), "vector_add/vectorized", RecordGrade::measured);
  gone.winner.choice.kernel_template = "vector_add/none";
  ASSERT_TRUE(site_.cache.put_record(gone));
  EXPECT_EQ(find(bound(4096), Match::none, AnswerFinder::Bits::built).reason,
            MissReason::template_missing);
  EXPECT_TRUE(seen_.empty());
}

TEST_F(AnswerFinderTest, AFileThatIsPassedOverIsSaidInTheLog) {
  put(bound(4096));
  const std::string file = finder_.look_up(bound(4096)).records[0].file;
  std::ofstream(file, std::ios::trunc) << "torn";
  EXPECT_EQ(find(bound(4096), Match::none, AnswerFinder::Bits::built).reason, MissReason::corrupt);
  EXPECT_TRUE(said("passed over in the cache: ")) << log_.size();
  EXPECT_TRUE(said(file));
}

TEST_F(AnswerFinderTest, TheEnvironmentHasACompilerOnceOneIsLoaded) {
  EXPECT_EQ(finder_.environment().compiler, "");
  ASSERT_TRUE(builder_->load_compiler());
  const RecordEnvironment today = finder_.environment();
  EXPECT_EQ(today.compiler, "fake 1.0");
  EXPECT_EQ(today.driver, "580.1");
  EXPECT_EQ(today.kernwright, kernwright_version());
  EXPECT_EQ(today.template_digest, "");
}

TEST_F(AnswerFinderTest, OnlyATemplateThatExistsHasADigest) {
  EXPECT_EQ(finder_.template_digest("vector_add/none"), "");
  const std::string digest = finder_.template_digest("vector_add/vectorized");
  EXPECT_EQ(digest.size(), 64U);
  EXPECT_EQ(finder_.template_digest("vector_add/vectorized"), digest);
  EXPECT_NE(finder_.template_digest("rmsnorm/row"), digest);
}

TEST_F(AnswerFinderTest, ARecordThatNoLookupServesIsFound) {
  const TuningRecord whole = record(bound(4096), "vector_add/vectorized", RecordGrade::predicted);
  const CompiledKernel bits;
  EXPECT_TRUE(finder_.check(head_of(whole), bits));

  TuningRecord outside = whole;
  ParameterValues values = outside.winner.choice.configuration.values();
  for (auto& [name, value] : values) {
    if (name == "THREADS") value = 257;
  }
  outside.winner.choice.configuration = Configuration(values);
  const Result<void> refused = finder_.check(head_of(outside), bits);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().message.starts_with("no lookup serves its winner vector_add/"))
      << refused.error().message;

  outside.environment.template_digest = "of another text";
  EXPECT_TRUE(finder_.check(head_of(outside), bits)) << "that is not known";
}

TEST_F(AnswerFinderTest, AnArtifactOfAnotherKernelIsFoundAndNotServed) {
  const TuningRecord made = record(bound(4096), "vector_add/vectorized", RecordGrade::predicted);
  CompiledKernel other;
  other.bits = "\177ELF of another";
  other.entries = {{"rmsnorm_row", {}}};
  const Result<void> checked = finder_.check(head_of(made), other);
  ASSERT_FALSE(checked);
  EXPECT_TRUE(checked.error().message.starts_with("its winner's artifact " + made.winner.artifact))
      << checked.error().message;
}

}  // namespace
}  // namespace kernwright
