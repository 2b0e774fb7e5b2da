// The answers that are served if none is exact, and what becomes of them.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cache/entries/key_lock.h"
#include "cache/stores/lookup_log.h"
#include "support/hash.h"
#include "tests/results.h"
#include "tests/service/core_fixture.h"
#include "tests/support/faulty_files.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

TEST_F(ServiceCoreTest, ATunedNeighbourAnswersWithItsBitsUntilTheShapeIsTuned) {
  ASSERT_TRUE(open()->tune(problem_, few_trials()));
  world_.compiles = 0;
  const Problem other = vector_add(5000, DType::bf16);
  const auto core = open(MissPolicy::fail);
  const Kernel near = must(core->get_best_kernel(other));
  EXPECT_EQ(near.match(), Match::bucket);
  EXPECT_EQ(near.summary().reason, MissReason::other_shape);
  EXPECT_EQ(near.summary().problem, "vector_add n=5000 dtype=bf16");
  EXPECT_EQ(near.arguments()[0].extent, std::vector<std::int64_t>{5000});
  EXPECT_EQ(world_.compiles, 0);
  EXPECT_EQ(core->coverage(other).match, Match::bucket);
  EXPECT_FALSE(core->get_best_kernel(vector_add(50000, DType::bf16))) << "beyond the distance";
  ASSERT_TRUE(core->tune(other, few_trials()));
  EXPECT_EQ(core->get_best_kernel(other)->match(), Match::exact);
}

TEST_F(ServiceCoreTest, LookupsAreCountedAndMissesLogged) {
  const auto core = open();
  ASSERT_TRUE(core->get_best_kernel(problem_));
  ASSERT_TRUE(core->get_best_kernel(problem_));
  const std::vector<LookupCount> counts = core->counters().read();
  ASSERT_EQ(counts.size(), 1U);
  EXPECT_EQ(counts[0].match, Match::none);
  EXPECT_EQ(counts[0].reason, MissReason::absent);
  EXPECT_EQ(counts[0].count, 1U);
  const std::vector<LoggedLookup> misses = LookupLog::of_misses(cache_.path()).counts().value();
  ASSERT_EQ(misses.size(), 1U);
  EXPECT_EQ(misses[0].key.problem, "vector_add n=4096 dtype=bf16");
  EXPECT_EQ(misses[0].key.sku, "h200");
}

TEST_F(ServiceCoreTest, BelowTheLeastMatchNothingIsServedOrCompiled) {
  ASSERT_TRUE(open()->get_best_kernel(problem_));  // a prediction, with its bits
  world_.compiles = 0;
  min_match_ = Match::recheck;
  EXPECT_THAT(open()->get_best_kernel(problem_),
              Fails(ErrorCode::not_found,
                    ::testing::AllOf(HasSubstr("vector_add n=4096 dtype=bf16; target=sm_90"),
                                     HasSubstr("the best is predicted"))));
  EXPECT_EQ(world_.compiles, 0);

  const auto tuned = must(open()->tune(problem_, few_trials()));
  world_.driver_version = "590.2";
  world_.compiles = 0;
  const auto core = open();
  EXPECT_EQ(core->get_best_kernel(problem_)->match(), Match::recheck);
  EXPECT_EQ(core->coverage(problem_).match, Match::recheck);
  std::filesystem::remove(core->cache().artifacts().path(tuned.record.winner.artifact));
  EXPECT_FALSE(open()->get_best_kernel(problem_)) << "its bits are gone";
  EXPECT_EQ(world_.compiles, 0);
  min_match_ = Match::exact;
  EXPECT_EQ(open()->coverage(problem_).reason, MissReason::other_driver);
}

TEST_F(ServiceCoreTest, InTheBackgroundAPredictionIsReplacedAndItsHandleStays) {
  tune_seconds_ = 0.5;
  const auto core = open(MissPolicy::tune_in_background);
  const Problem spelled = Problem::make("rmsnorm", {{"columns", 64}, {"rows", 8}},
                                        {{"weight", "scale"}, {"dtype", "bf16"}});
  const Kernel first = must(core->get_best_kernel(spelled));
  EXPECT_EQ(first.match(), Match::predicted);
  core->wait_for_background();
  EXPECT_EQ(core->get_best_kernel(spelled)->match(), Match::exact) << "in every spelling";
  EXPECT_EQ(core->get_best_kernel(rmsnorm(8, 64, DType::bf16))->match(), Match::exact);
  EXPECT_EQ(first.match(), Match::predicted);
  EXPECT_EQ(open(MissPolicy::fail)->get_best_kernel(spelled)->match(), Match::exact);
}

TEST_F(ServiceCoreTest, WhatAnotherDriverMeasuredIsMeasuredAgainInTheBackground) {
  ASSERT_TRUE(open()->tune(problem_, few_trials()));
  world_.driver_version = "590.2";
  tune_seconds_ = 0.5;
  const auto core = open(MissPolicy::tune_in_background);
  EXPECT_EQ(core->get_best_kernel(problem_)->match(), Match::recheck);
  core->wait_for_background();
  EXPECT_EQ(core->get_best_kernel(problem_)->match(), Match::exact);
}

TEST_F(ServiceCoreTest, WhatCannotBeTunedInTheBackgroundIsSaidAndThePredictionStays) {
  std::vector<std::string> said;
  const auto core = must(
      ServiceCore::open({.cache = cache_.path(),
                         .on_miss = MissPolicy::tune_in_background,
                         .worker = (cache_.path() / "none").string(),
                         .log = [&](LogLevel, std::string_view line) { said.emplace_back(line); }},
                        fake_surroundings(world_)));
  EXPECT_TRUE(core->get_best_kernel(problem_));
  core->wait_for_background();
  // A slow machine's log has other lines too.
  EXPECT_EQ(std::ranges::count_if(said,
                                  [](const std::string& line) {
                                    return line.starts_with("not tuned: no worker to measure with");
                                  }),
            1)
      << said.front();
  EXPECT_EQ(core->get_best_kernel(problem_)->match(), Match::predicted);
}

TEST_F(ServiceCoreTest, AWinnerIsCompiledAgainUnlessItIsNoCandidateHere) {
  const auto core = open();
  ASSERT_TRUE(core->get_best_kernel(problem_));
  RecordHead head = core->answers().look_up(*core->bind(problem_)).records[0].head;
  EXPECT_EQ(*core->recompile(head), Builder::Recompiled::same);
  const auto changed = [&](const auto& change) {
    RecordHead other = head;
    change(other);
    return *core->recompile(other);
  };
  const auto other_code = Builder::Recompiled::other_code;
  EXPECT_EQ(changed([](RecordHead& h) { h.key.problem = "="; }), other_code);
  EXPECT_EQ(changed([](RecordHead& h) { h.key.problem = "vector_sub n=4"; }), other_code);
  EXPECT_EQ(changed([](RecordHead& h) { h.winner.choice.kernel_template = "x/y"; }), other_code);
  EXPECT_EQ(changed([](RecordHead& h) { h.winner.artifact = std::string(64, '0'); }), other_code);
}

TEST_F(ServiceCoreTest, WithoutABudgetNothingIsTunedInTheBackground) {
  background_seconds_ = 0;
  const auto core = open(MissPolicy::tune_in_background);
  ASSERT_TRUE(core->get_best_kernel(problem_));
  core->wait_for_background();
  EXPECT_EQ(core->get_best_kernel(problem_)->match(), Match::predicted);
}

TEST_F(ServiceCoreTest, ABannedPredictionIsReplacedByTheNextAndAPinIsServed) {
  const Kernel first = must(open()->get_best_kernel(problem_));
  const auto decide = [&](OverrideAction action) {
    const auto core = open();
    Override made{.key = core->site().key(*core->bind(problem_)), .action = action};
    made.choice.kernel_template = first.summary().kernel_template;
    for (const RecordStore::Listed& listed : core->cache().records().list()) {
      if (listed.record.value->winner.choice.configuration.text() ==
          first.summary().configuration) {
        made.choice.configuration = listed.record.value->winner.choice.configuration;
      }
    }
    ASSERT_TRUE(core->cache().put_override(made));
  };
  decide(OverrideAction::ban);
  EXPECT_FALSE(open(MissPolicy::fail)->get_best_kernel(problem_));
  const auto next_core = open();
  const Kernel next = must(next_core->get_best_kernel(problem_));
  EXPECT_NE(next.summary().configuration, first.summary().configuration);
  decide(OverrideAction::pin);
  EXPECT_EQ(open()->get_best_kernel(problem_)->summary().configuration,
            first.summary().configuration);
}

// The other process never ends.
TEST_F(ServiceCoreTest, ALookupWaitsForAnotherProcessForAWhileAlone) {
  const auto core = open();
  const std::string turn = digest_of(core->site().key(*core->bind(problem_)).text()).hex();
  const KeyLock other = KeyLock::acquire(cache_.path(), turn, std::chrono::milliseconds(0));
  ASSERT_TRUE(other.held());
  EXPECT_TRUE(core->get_best_kernel(problem_));
}

TEST_F(ServiceCoreTest, ServicesThatMissTheSameAtOncePredictItOnce) {
  std::vector<std::shared_ptr<ServiceCore>> cores;
  for (int i = 0; i < 8; ++i) {
    Surroundings surroundings = fake_surroundings(world_);
    surroundings.patience = std::chrono::minutes(1);
    cores.push_back(
        *ServiceCore::open({.cache = cache_.path(), .sku = "h200"}, std::move(surroundings)));
  }
  std::vector<std::thread> threads;
  for (const auto& core : cores) {
    threads.emplace_back([&] { EXPECT_TRUE(core->get_best_kernel(problem_)); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cores[0]->cache().records().list().size(), 1U);
  EXPECT_EQ(world_.compiles, 1);
}

TEST_F(ServiceCoreTest, TheCanaryLaunchesWhatWouldBeServed) {
  const auto core = open();
  EXPECT_EQ(core->canary(problem_).error().code, ErrorCode::not_found);
  ASSERT_TRUE(core->get_best_kernel(problem_));
  EXPECT_TRUE(core->canary(problem_));
  world_.outcome = [](const ExecutionPlan&) { return Outcome::illegal_address; };
  EXPECT_THAT(core->canary(problem_), Fails(ErrorCode::device));
  EXPECT_EQ(open(MissPolicy::predict, "h200")->canary(problem_).error().code,
            ErrorCode::unavailable);
}

TEST_F(ServiceCoreTest, ACacheThatFailsCostsTheCachingOnly) {
  for (const int error : {EACCES, ESTALE, ENOSPC, EIO}) {
    const FaultyFiles faulty(cache_.path().native(), FaultyFiles::Call::all, error);
    const auto core = open();
    const Kernel kernel = must(core->get_best_kernel(problem_));
    EXPECT_EQ(kernel.match(), Match::predicted);
    EXPECT_TRUE(core->tune(problem_, few_trials()));
    EXPECT_EQ(core->get_best_kernel(problem_)->match(), Match::exact);
    EXPECT_GT(FaultyFiles::failed(), 0);
  }
}

TEST_F(ServiceCoreTest, PrewarmingListsEveryProblemThatIsMissing) {
  ASSERT_TRUE(open()->tune(problem_, few_trials()));
  Service service =
      must(Service::open({.cache = cache_.path(), .sku = "h200", .min_match = Match::recheck}));
  EXPECT_TRUE(service.prewarm({}));
  EXPECT_THAT(
      service.prewarm({vector_add(1, DType::bf16), problem_, rmsnorm(8, 64, DType::fp16)}),
      Fails(ErrorCode::not_found, ::testing::AllOf(HasSubstr("vector_add n=1 dtype=bf16"),
                                                   HasSubstr("rmsnorm rows=8 columns=64"))));
}

}  // namespace
}  // namespace kernwright
