// The work that a sealed service still does, and the work that it does not.

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "tests/results.h"
#include "tests/service/core_fixture.h"

namespace kernwright {
namespace {

class SealedCoreTest : public ServiceCoreTest {
 protected:
  const Problem unknown_ = vector_add(1 << 24, DType::bf16);
};

TEST_F(SealedCoreTest, WhatNeedsNoCompileIsServed) {
  ASSERT_TRUE(open()->get_best_kernel(unknown_));  // a prediction, whose bits are stored
  const auto core = open();
  ASSERT_TRUE(core->get_best_kernel(problem_));
  core->seal(SealMode::error);
  world_.compiles = 0;
  EXPECT_TRUE(core->get_best_kernel(problem_)) << "in memory";
  EXPECT_TRUE(core->get_best_kernel(unknown_)) << "in the cache";
  EXPECT_EQ(core->builder().seal().counted(), 0U);
  EXPECT_EQ(world_.compiles, 0);
}

TEST_F(SealedCoreTest, WhateverCompilesIsRefusedByEveryPolicyAndTheProblemIsNamed) {
  for (const MissPolicy policy :
       {MissPolicy::predict, MissPolicy::tune_now, MissPolicy::tune_in_background}) {
    const auto core = open(policy);
    core->seal(SealMode::error);
    const Result<Kernel> refused = core->get_best_kernel(unknown_);
    EXPECT_THAT(refused,
                Fails(ErrorCode::refused,
                      ::testing::StartsWith("vector_add n=16777216 dtype=bf16 needs a compile "
                                            "(absent), and the service is sealed; ")));
    EXPECT_EQ(core->tune(unknown_, few_trials()).error().code, ErrorCode::refused);
    EXPECT_EQ(core->predict(unknown_, {.trials = 1}).error().code, ErrorCode::refused);
    EXPECT_EQ(core->builder().seal().counted(), 3U);
  }
  EXPECT_EQ(world_.compiles, 0);
}

TEST_F(SealedCoreTest, APolicyThatFailsSaysSoItself) {
  const auto core = open(MissPolicy::fail);
  core->seal(SealMode::error);
  EXPECT_EQ(core->get_best_kernel(unknown_).error().code, ErrorCode::not_found);
  EXPECT_EQ(core->builder().seal().counted(), 0U);
}

TEST_F(SealedCoreTest, APredictionServesEvenWhereAMissWouldBeTuned) {
  ASSERT_TRUE(open()->get_best_kernel(problem_));
  const auto core = open(MissPolicy::tune_now);
  core->seal(SealMode::error);
  EXPECT_EQ(core->get_best_kernel(problem_)->match(), Match::predicted);
}

TEST_F(SealedCoreTest, MoreKernelsAreThoseThatAreStored) {
  const auto core = open();
  ASSERT_TRUE(core->get_best_kernel(problem_));
  core->seal(SealMode::error);
  world_.compiles = 0;
  const std::vector<Kernel> kernels = must(core->get_best_kernels(problem_, 4));
  EXPECT_EQ(kernels.size(), 1U);
  EXPECT_EQ(world_.compiles, 0);
}

TEST_F(SealedCoreTest, AWarningNamesTheProblemAndTheCompileGoesOn) {
  std::vector<std::string> said;
  const auto core =
      *ServiceCore::open({.cache = cache_.path(),
                          .log = [&](LogLevel, std::string_view line) { said.emplace_back(line); }},
                         fake_surroundings(world_));
  core->seal(SealMode::warning);
  EXPECT_TRUE(core->get_best_kernel(unknown_));
  ASSERT_EQ(said.size(), 1U);
  EXPECT_TRUE(said[0].starts_with("vector_add n=16777216 dtype=bf16 needs a compile")) << said[0];
  EXPECT_EQ(core->builder().seal().counted(), 1U);
}

TEST_F(SealedCoreTest, TuningInTheBackgroundEnds) {
  const auto core = open(MissPolicy::tune_in_background);
  ASSERT_TRUE(core->get_best_kernel(problem_));
  core->seal(SealMode::error);
  core->wait_for_background();
  ASSERT_TRUE(core->get_best_kernel(problem_));
  world_.compiles = 0;
  EXPECT_FALSE(core->get_best_kernel(unknown_));
  core->wait_for_background();
  EXPECT_EQ(world_.compiles, 0);
}

}  // namespace
}  // namespace kernwright
