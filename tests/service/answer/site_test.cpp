#include "service/answer/site.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "tests/results.h"
#include "tests/service/site_fixture.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

class SiteTest : public SiteFixture {
 protected:
  /// Returns why the values make no candidate of a vector_add; empty if they make one.
  std::string refusal(std::string_view kernel_template, const ParameterValues& values) const {
    const Result<Candidate> made =
        site_.candidate(*site_.bind(vector_add(4096, DType::bf16)), kernel_template, values);
    return made ? "" : made.error().message;
  }
};

TEST_F(SiteTest, AProblemIsBoundInTheNormalFormOfItsOperation) {
  const BoundProblem bound = must(site_.bind(Problem::make(
      "rmsnorm", {{"columns", 64}, {"rows", 8}}, {{"weight", "scale"}, {"dtype", "bf16"}})));
  EXPECT_EQ(bound.text(), "rmsnorm rows=8 columns=64 dtype=bf16");
}

TEST_F(SiteTest, WhatItsOperationDoesNotTakeIsAnInvalidArgument) {
  for (const char* text : {"vectoradd n=4096 dtype=bf16", "vector_add n=0 dtype=bf16",
                           "vector_add n=4096 dtype=int8", "vector_add m=4096 dtype=bf16"}) {
    EXPECT_THAT(site_.bind(*Problem::parse(text)), Fails(ErrorCode::invalid_argument)) << text;
  }
}

TEST_F(SiteTest, AProblemMayFillTheMemoryButNotExceedIt) {
  site_.profile.memory_bytes = 3 * 4096 * 2;
  EXPECT_TRUE(site_.bind(vector_add(4096, DType::bf16)));
  EXPECT_THAT(site_.bind(vector_add(4097, DType::bf16)), Fails(ErrorCode::invalid_argument));
}

TEST_F(SiteTest, AProfileThatSaysNothingOfItsMemoryHasNoLimit) {
  site_.profile.memory_bytes = 0;
  EXPECT_TRUE(site_.bind(vector_add(1'000'000'000'000, DType::bf16)));
}

TEST_F(SiteTest, AKeyHasTheProblemTheGpuAndThePolicy) {
  site_.policy.l2 = L2State::warm;
  const RecordKey key = site_.key(*site_.bind(vector_add(4096, DType::bf16)));
  EXPECT_EQ(key.problem, "vector_add n=4096 dtype=bf16");
  EXPECT_EQ(key.target, "sm_90");
  EXPECT_EQ(key.sku, "h200");
  EXPECT_EQ(key.policy.l2, L2State::warm);
}

TEST_F(SiteTest, ParametersThatAreNotGivenTakeTheirDefaults) {
  const Candidate made = must(site_.candidate(*site_.bind(vector_add(4096, DType::bf16)),
                                              "vector_add/vectorized", {{"THREADS", 512}}));
  EXPECT_EQ(made.configuration.at("THREADS"), 512);
  EXPECT_EQ(made.configuration.at("VECTORS"), 2);
}

TEST_F(SiteTest, WhatMakesNoCandidateIsNamed) {
  EXPECT_EQ(refusal("vector_add/vectorized", {{"THREADS", 512}}), "");
  EXPECT_THAT(refusal("vector_add/none", {}), HasSubstr("vector_add/none"));
  EXPECT_THAT(refusal("rmsnorm/row", {}), HasSubstr("implements rmsnorm"));
  const std::string unknown = refusal("vector_add/vectorized", {{"WARPS", 4}});
  EXPECT_THAT(unknown, HasSubstr("no parameter WARPS; it has THREADS=256"));
  const std::string rule = refusal("vector_add/vectorized", {{"THREADS", 1024}, {"VECTORS", 8}});
  EXPECT_THAT(rule, HasSubstr("8192 > 4096"));
  EXPECT_THAT(rule, HasSubstr("four vectors"));
}

TEST_F(SiteTest, ATemplateForAnotherArchitectureMakesNoCandidate) {
  const BoundProblem product = *site_.bind(matmul({.m = 128, .n = 128, .k = 128}, DType::bf16));
  EXPECT_TRUE(site_.candidate(product, "matmul/persistent_wave", {}));
  site_.profile = *find_profile("a100_80");
  EXPECT_THAT(site_.candidate(product, "matmul/persistent_wave", {}),
              Fails(ErrorCode::invalid_argument));
}

TEST_F(SiteTest, WithoutALogNothingIsSaid) {
  site_.say(LogLevel::info, "first");
  EXPECT_TRUE(said("first"));
  site_.log = {};
  site_.say(LogLevel::info, "second");
  EXPECT_EQ(log_.size(), 1U);
}

}  // namespace
}  // namespace kernwright
