// Services that record what they are asked for, or tune it.

#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "service/sweep/worklist.h"
#include "support/files.h"
#include "tests/results.h"
#include "tests/service/core_fixture.h"

namespace kernwright {
namespace {

class WatchedCoreTest : public ServiceCoreTest {
 protected:
  const std::filesystem::path file_ = cache_.path() / "shapes.jsonl";
  const Problem other_ = vector_add(1 << 24, DType::bf16);
};

TEST_F(WatchedCoreTest, EveryProblemIsRecordedOnceWithItsCountAsAWorklist) {
  const auto core = open();
  ASSERT_TRUE(core->get_best_kernel(other_)) << "in memory before the recording";
  ASSERT_TRUE(core->record_shapes(file_));
  ASSERT_TRUE(core->get_best_kernel(problem_));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(core->get_best_kernel(other_));
  ASSERT_TRUE(core->record_shapes({}));
  ASSERT_TRUE(core->get_best_kernel(problem_)) << "after the recording";

  const std::vector<LoggedLookup> counts = *LookupLog(file_).counts();
  ASSERT_EQ(counts.size(), 2U);
  EXPECT_EQ(counts[0].key.problem, "vector_add n=16777216 dtype=bf16");
  EXPECT_EQ(counts[0].count, 3);
  EXPECT_EQ(counts[0].match, Match::predicted);
  EXPECT_EQ(counts[1].count, 1);
  const auto worklist = must(parse_worklist(*read_file(file_), "shapes.jsonl"));
  ASSERT_EQ(worklist.size(), 2U);
  EXPECT_EQ(worklist.at(0).problem.text(), "vector_add n=16777216 dtype=bf16")
      << "the most asked for comes first";
}

TEST_F(WatchedCoreTest, WhatIsRefusedIsRecordedToo) {
  const auto core = open(MissPolicy::fail);
  ASSERT_TRUE(core->record_shapes(file_));
  EXPECT_FALSE(core->get_best_kernel(problem_));
  EXPECT_FALSE(core->get_best_kernel(Problem::make("vector_add", {{"n", 0}}))) << "no problem";
  const std::vector<LoggedLookup> counts = *LookupLog(file_).counts();
  ASSERT_EQ(counts.size(), 1U);
  EXPECT_EQ(counts[0].match, Match::none);
}

TEST_F(WatchedCoreTest, AnotherFileIsNotOverwritten) {
  std::ofstream(file_) << R"({"problems": []})" << '\n';
  const auto core = open();
  EXPECT_EQ(core->record_shapes(file_).error().code, ErrorCode::invalid_argument);
  ASSERT_TRUE(core->get_best_kernel(problem_));
  EXPECT_EQ(*read_file(file_), "{\"problems\": []}\n");
}

TEST_F(WatchedCoreTest, AutotuneTunesWhatIsAskedForAlsoWhatIsInMemory) {
  const Problem near = vector_add(5000, DType::bf16);
  const auto core = open();
  EXPECT_EQ(core->get_best_kernel(problem_)->match(), Match::predicted);
  core->autotune(0.5);
  EXPECT_EQ(core->get_best_kernel(problem_)->match(), Match::exact);
  EXPECT_EQ(core->get_best_kernel(near)->match(), Match::exact) << "not that of a neighbour";
  const int compiles = world_.compiles;
  EXPECT_EQ(core->get_best_kernel(problem_)->match(), Match::exact);
  EXPECT_EQ(world_.compiles, compiles) << "once";
  core->autotune(0);
  EXPECT_EQ(core->get_best_kernel(other_)->match(), Match::predicted);
  EXPECT_EQ(open(MissPolicy::fail)->get_best_kernel(near)->match(), Match::exact) << "it is kept";
}

TEST_F(WatchedCoreTest, InACaptureNothingIsTuned) {
  world_.driver.current = reinterpret_cast<CUcontext>(0xcc);
  const auto core = open();
  ASSERT_TRUE(core->get_best_kernel(problem_));
  core->autotune(0.5);
  world_.driver.capture_status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  const Kernel kernel = must(core->get_best_kernel(problem_, this));
  EXPECT_EQ(kernel.match(), Match::predicted);
  EXPECT_EQ(world_.driver.capture_status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
}

TEST_F(WatchedCoreTest, ASealedServiceTunesNothing) {
  const auto core = open();
  ASSERT_TRUE(core->get_best_kernel(problem_));
  core->autotune(0.5);
  core->seal(SealMode::error);
  EXPECT_EQ(core->get_best_kernel(problem_)->match(), Match::predicted);
  EXPECT_EQ(core->get_best_kernel(other_).error().code, ErrorCode::refused);
}

TEST_F(WatchedCoreTest, WithoutAGpuAutotuneFailsAsTuningDoes) {
  const auto core = open(MissPolicy::predict, "h200");
  core->autotune(0.5);
  EXPECT_EQ(core->get_best_kernel(problem_).error().code, ErrorCode::unavailable);
}

}  // namespace
}  // namespace kernwright
