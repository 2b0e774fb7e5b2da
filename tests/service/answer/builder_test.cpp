#include "service/answer/builder.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <string>

#include "tests/results.h"
#include "tests/service/site_fixture.h"

namespace kernwright {
namespace {

class BuilderTest : public SiteFixture {
 protected:
  const Candidate candidate_ =
      *site_.candidate(*site_.bind(vector_add(4096, DType::bf16)), "vector_add/vectorized", {});
};

TEST_F(BuilderTest, WhatWasBuiltIsStoredForTheNext) {
  const Artifact first = must(builder()->build(candidate_));
  EXPECT_FALSE(first.cached);
  const auto next = builder();
  const Artifact second = must(next->build(candidate_));
  EXPECT_TRUE(second.cached);
  EXPECT_EQ(second.digest, first.digest);
  EXPECT_EQ(second.kernel->bits, first.kernel->bits);
  EXPECT_EQ(world_.compiles, 1);
  EXPECT_EQ(next->pool().compiled(), 0);
}

TEST_F(BuilderTest, TheCompilerIsKnownOnceSomethingNeededIt) {
  const auto fresh = builder();
  EXPECT_EQ(fresh->compiler(), "");
  ASSERT_TRUE(fresh->build(candidate_));
  EXPECT_EQ(fresh->compiler(), "fake 1.0");
}

TEST_F(BuilderTest, WithoutAToolkitNothingIsBuilt) {
  world_.toolkit_missing = true;
  EXPECT_EQ(builder()->build(candidate_).error().code, ErrorCode::unavailable);
}

TEST_F(BuilderTest, OnceSealedItGivesStoredBitsAlone) {
  ASSERT_TRUE(builder()->build(candidate_));
  const auto sealed = builder();
  sealed->seal().close(SealMode::error);
  EXPECT_TRUE(sealed->build(candidate_));
  std::filesystem::remove(site_.cache.artifacts().path(sealed->build(candidate_)->digest));
  EXPECT_THAT(sealed->build(candidate_), Fails(ErrorCode::refused));
  EXPECT_EQ(world_.compiles, 1);
}

TEST_F(BuilderTest, CompilingAgainComparesWithWhatIsStored) {
  const auto one = builder();
  const std::string digest = one->build(candidate_)->digest;
  EXPECT_EQ(*one->recompile(candidate_, digest), Builder::Recompiled::same);
  EXPECT_EQ(world_.compiles, 2) << "what is stored is no answer";
  EXPECT_EQ(*one->recompile(candidate_, std::string(64, '0')), Builder::Recompiled::other_code);
  std::filesystem::remove(site_.cache.artifacts().path(digest));
  CompiledKernel other;
  other.bits = "other";
  ASSERT_TRUE(site_.cache.put_artifact(digest, other));
  EXPECT_EQ(*one->recompile(candidate_, digest), Builder::Recompiled::differs);
  std::filesystem::remove(site_.cache.artifacts().path(digest));
  EXPECT_EQ(one->recompile(candidate_, digest).error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace kernwright
