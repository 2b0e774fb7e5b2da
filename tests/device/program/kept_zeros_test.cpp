#include "device/program/kept_zeros.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <set>

#include "tests/doubles/fake_driver.h"

namespace kernwright {
namespace {

class KeptZerosTest : public ::testing::Test {
 protected:
  KeptZerosTest() { driver_.current = reinterpret_cast<CUcontext>(0xcc); }

  static CUstream stream(std::uint64_t handle) { return reinterpret_cast<CUstream>(handle); }
  void begin_capture(cuuint64_t number) {
    driver_.capture = number;
    driver_.capture_status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  }
  void end_capture() { driver_.capture_status = CU_STREAM_CAPTURE_STATUS_NONE; }

  FakeDriver driver_;
  KeptZeros zeros_{driver_.api()};
};

TEST_F(KeptZerosTest, LaunchesOnOneStreamShareAndStreamsHaveTheirOwn) {
  const DevicePointer one = zeros_.of(stream(0x77), 8);
  ASSERT_NE(one, 0U);
  EXPECT_EQ(one % 256, 0U);
  EXPECT_EQ(zeros_.of(stream(0x77), 4096), one) << "of another kernel";
  const DevicePointer other = zeros_.of(stream(0x88), 8);
  EXPECT_GE(other > one ? other - one : one - other, 4096U);
  EXPECT_EQ(zeros_.of(stream(0x77), 8), one);
  ASSERT_EQ(driver_.fills.size(), 1U) << "all are filled once, and not in a stream's order";
  EXPECT_LE(driver_.fills[0].to, one);
  EXPECT_LE(other + 4096, driver_.fills[0].to + driver_.fills[0].bytes);
}

TEST_F(KeptZerosTest, AStreamThatHasTheHandleOfAnEarlierOneHasOthers) {
  const DevicePointer one = zeros_.of(stream(0x77), 8);
  driver_.stream_ids[stream(0x77)] = 0x99;
  EXPECT_NE(zeros_.of(stream(0x77), 8), one);
}

TEST_F(KeptZerosTest, ALargerKernelGetsMoreAndTheOthersKeepTheirs) {
  const DevicePointer small = zeros_.of(stream(0x77), 8);
  const DevicePointer large = zeros_.of(stream(0x77), 5000);
  const DevicePointer huge = zeros_.of(stream(0x77), 5 << 20);
  const DevicePointer other = zeros_.of(stream(0x88), 8);
  EXPECT_EQ((std::set{small, large, huge, other}.size()), 4U);
  EXPECT_EQ(zeros_.of(stream(0x77), 4097), large);
  EXPECT_EQ(driver_.fills.at(1).bytes, 8U << 20) << "a power of two";
}

TEST_F(KeptZerosTest, AGraphKeepsItsZerosUntilItIsDestroyed) {
  const DevicePointer outside = zeros_.of(stream(0x77), 8);
  begin_capture(5);
  const DevicePointer first = zeros_.of(stream(0x77), 8);
  const DevicePointer side = zeros_.of(stream(0x88), 8);
  EXPECT_EQ(zeros_.of(stream(0x77), 8), first);
  begin_capture(6);
  const DevicePointer second = zeros_.of(stream(0x77), 8);
  EXPECT_EQ((std::set{outside, first, side, second}.size()), 4U);
  EXPECT_EQ(driver_.capture_status, CU_STREAM_CAPTURE_STATUS_ACTIVE) << "ends no capture";
  end_capture();
  EXPECT_EQ(zeros_.of(stream(0x77), 8), outside);
  driver_.end_graph(5);
  begin_capture(7);
  const DevicePointer third = zeros_.of(stream(0x77), 8);
  EXPECT_TRUE(third == first || third == side);
  EXPECT_NE(zeros_.of(stream(0x88), 8), third);
}

TEST_F(KeptZerosTest, AGraphMayOutliveThem) {
  {
    const KeptZeros zeros(driver_.api());
    begin_capture(5);
    EXPECT_NE(zeros.of(stream(0x77), 8), 0U);
    end_capture();
  }
  EXPECT_EQ(driver_.alive.count("memory"), 0U);
  driver_.end_graph(5);
}

TEST_F(KeptZerosTest, NoneForAnotherContextForTooManyStreamsAndWithoutTheDriver) {
  ASSERT_NE(zeros_.of(stream(0x77), 8), 0U);
  driver_.stream_context = reinterpret_cast<CUcontext>(0xdd);
  EXPECT_EQ(zeros_.of(stream(0x88), 8), 0U) << "not of the thread's context";
  driver_.current = driver_.stream_context;
  EXPECT_EQ(zeros_.of(stream(0x88), 8), 0U);
  EXPECT_EQ(zeros_.of(nullptr, 8), 0U) << "a default stream is of the thread's context";
  driver_.current = reinterpret_cast<CUcontext>(0xcc);
  driver_.stream_context = nullptr;
  for (std::size_t i = 1; i < KeptZeros::kMostStreams; ++i) {
    ASSERT_NE(zeros_.of(stream(0x1000 + i), 8), 0U);
  }
  EXPECT_EQ(zeros_.of(stream(0x88), 8), 0U);
  EXPECT_NE(zeros_.of(stream(0x77), 8), 0U);

  begin_capture(5);
  for (const char* call : {"cuUserObjectCreate", "cuGraphRetainUserObject"}) {
    driver_.failures[call] = CUDA_ERROR_OUT_OF_MEMORY;
    EXPECT_EQ(zeros_.of(stream(0x88), 8), 0U) << call;
    driver_.failures.clear();
  }
  EXPECT_NE(zeros_.of(stream(0x88), 8), 0U);
  EXPECT_EQ(zeros_.of(CU_STREAM_PER_THREAD, 8), 0U);
  EXPECT_EQ(driver_.capture_status, CU_STREAM_CAPTURE_STATUS_ACTIVE) << "ends no capture";
  driver_.capture_status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  EXPECT_EQ(zeros_.of(stream(0x88), 8), 0U);
  end_capture();
  driver_.failures["cuMemAlloc"] = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(zeros_.of(stream(0x77), 1 << 21), 0U);
}

}  // namespace
}  // namespace kernwright
