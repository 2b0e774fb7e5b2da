// Lookups while a stream is in a capture.

#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/service/core_fixture.h"

namespace kernwright {
namespace {

class CapturedLookupTest : public ServiceCoreTest {
 protected:
  CapturedLookupTest() { world_.driver.current = reinterpret_cast<CUcontext>(0xcc); }

  void begin_capture() { world_.driver.capture_status = CU_STREAM_CAPTURE_STATUS_ACTIVE; }
  bool capture_is_valid() const {
    return world_.driver.capture_status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  }

  void* stream_ = &world_;
  const std::vector<std::string>& calls_ = world_.driver.calls;
};

TEST_F(CapturedLookupTest, WhatIsNotInMemoryIsRefusedWithTheRemedyAndTheCaptureStaysValid) {
  const auto core = open();
  world_.driver.calls.clear();
  begin_capture();
  const Result<Kernel> refused = core->get_best_kernel(problem_, stream_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::refused);
  EXPECT_EQ(refused.error().message,
            "vector_add n=4096 dtype=bf16 is not in memory, and nothing can be loaded while the "
            "stream is in a capture; get its kernel or prewarm it before the capture");
  EXPECT_EQ(calls_, std::vector<std::string>{"cuStreamIsCapturing"});
  EXPECT_TRUE(capture_is_valid());
  EXPECT_EQ(world_.compiles, 0);
  EXPECT_EQ(core->counters().read().size(), 0U) << "nothing was looked up";
}

TEST_F(CapturedLookupTest, WhatIsInMemoryIsServedWithoutAskingTheDriver) {
  const auto core = open();
  ASSERT_TRUE(core->get_best_kernel(problem_));
  world_.driver.calls.clear();
  begin_capture();
  EXPECT_TRUE(core->get_best_kernel(problem_, stream_));
  EXPECT_TRUE(calls_.empty());
}

TEST_F(CapturedLookupTest, WithoutACaptureAMissIsServedAsEver) {
  EXPECT_TRUE(open()->get_best_kernel(problem_, stream_));
  EXPECT_TRUE(open(MissPolicy::predict, "h200")->get_best_kernel(problem_, stream_))
      << "without a GPU there is no capture";
}

TEST_F(CapturedLookupTest, TheDefaultStreamCountsWhileAnotherStreamsCaptureForbidsIt) {
  const auto core = open();
  world_.driver.failures["cuStreamIsCapturing"] = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  EXPECT_EQ(core->get_best_kernel(problem_, nullptr).error().code, ErrorCode::refused);
  world_.driver.failures["cuStreamIsCapturing"] = CUDA_ERROR_DEINITIALIZED;
  EXPECT_EQ(core->get_best_kernel(problem_, nullptr).error().code, ErrorCode::device);
  world_.driver.failures["cuStreamIsCapturing"] = CUDA_ERROR_INVALID_CONTEXT;
  EXPECT_TRUE(core->get_best_kernel(problem_, nullptr)) << "no context, no capture";
}

TEST_F(CapturedLookupTest, ALoadThatKnowsNoStreamLeavesCapturesValid) {
  const auto core = open();
  begin_capture();
  EXPECT_TRUE(core->get_best_kernel(problem_));
  EXPECT_EQ(std::ranges::count(calls_, "cuLibraryLoadData"), 1);
  EXPECT_TRUE(capture_is_valid());
  EXPECT_EQ(world_.driver.capture_mode, CU_STREAM_CAPTURE_MODE_GLOBAL) << "as it was";
}

}  // namespace
}  // namespace kernwright
