#include "launch/loaded_kernel.h"

#include <algorithm>
#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "scripted_kernel.h"
#include "tests/doubles/fake_driver.h"

namespace kernwright {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ArgTest, UnsignedSixtyFourBitsAreAddressesAndOtherNumbersScalars) {
  for (const Arg& address : {Arg(std::uint64_t{4096}), Arg(4096ULL), Arg(4096UL)}) {
    EXPECT_FALSE(address.is_scalar());
    EXPECT_EQ(address.pointer(), reinterpret_cast<const void*>(4096));
  }
  EXPECT_FALSE(Arg(nullptr).is_scalar());
  for (const Arg& scalar :
       {Arg(3), Arg(3U), Arg(3L), Arg(3LL), Arg(std::int64_t{3}), Arg(3.0F), Arg(3.0)}) {
    EXPECT_TRUE(scalar.is_scalar());
    EXPECT_EQ(scalar.scalar(), 3);
  }
  EXPECT_TRUE(Arg(0).is_scalar()) << "not a null pointer";
  EXPECT_EQ(Arg(-1).scalar(), -1);
}

class LoadedKernelTest : public ::testing::Test {
 protected:
  LoadedKernelTest() { driver_.current = reinterpret_cast<CUcontext>(0xcc); }

  std::shared_ptr<LoadedKernel> load() {
    driver_.kernels["scale"] = parameter_sizes(plan_, plan_.launches[0]);
    auto launcher = load_launcher(driver_.api(), FakeDriver::cubin(), plan_, 0);
    EXPECT_TRUE(launcher) << launcher.error().message;
    return make_kernel(plan_, *std::move(launcher));
  }
  static CUstream stream(std::uint64_t handle) { return reinterpret_cast<CUstream>(handle); }
  static std::string message(const Result<void>& result) {
    EXPECT_FALSE(result);
    return result ? std::string() : result.error().message;
  }

  static constexpr std::uint64_t kX = 0x10000;
  static constexpr std::uint64_t kY = 0x20000;
  ExecutionPlan plan_ = mapped_plan();
  FakeDriver driver_;
};

TEST_F(LoadedKernelTest, ALaunchWithoutAWorkspaceTakesOneInTheOrderOfItsStream) {
  const auto kernel = load();
  driver_.calls.clear();
  ASSERT_TRUE(kernel->handle().launch(stream(0x77), {kX, kY, 3}));
  EXPECT_THAT(driver_.calls,
              ElementsAre("cuMemAllocFromPoolAsync", "cuLaunchKernelEx", "cuMemFreeAsync"));
  ASSERT_EQ(driver_.pool_memory.size(), 1U);
  const FakeDriver::PoolMemory& memory = driver_.pool_memory[0];
  EXPECT_EQ(memory.bytes, 256U) << "whole alignments";
  EXPECT_EQ(memory.taken_on, stream(0x77));
  EXPECT_EQ(memory.returned_on, stream(0x77));
  EXPECT_EQ(driver_.launches.back().value(3), memory.address);
  EXPECT_EQ(driver_.pool_keeps, std::numeric_limits<cuuint64_t>::max())
      << "else every wait of the host makes the next launch map its memory anew";

  ASSERT_TRUE(kernel->handle().launch_checked(stream(0x77), {kX, kY}));
  EXPECT_EQ(driver_.pool_memory.size(), 2U);
  EXPECT_EQ(driver_.alive.count("pool memory"), 0U);
}

TEST_F(LoadedKernelTest, ACallersWorkspaceIsUsedAndCostsNoCallOfThePool) {
  const auto kernel = load();
  driver_.calls.clear();
  ASSERT_TRUE(kernel->handle().launch(stream(0x77), {kX, kY},
                                      reinterpret_cast<void*>(std::uint64_t{0x40000})));
  EXPECT_THAT(driver_.calls, ElementsAre("cuLaunchKernelEx"));
  EXPECT_EQ(driver_.launches.back().value(3), 0x40000U);
}

TEST_F(LoadedKernelTest, WhatIsKeptZeroIsOfTheStreamAndFilledOnce) {
  plan_.workspaces[0].kept_zero = true;
  const auto kernel = load();
  const auto workspace = reinterpret_cast<void*>(std::uint64_t{0x40000});
  ASSERT_TRUE(kernel->handle().launch(stream(0x77), {kX, kY}, workspace));
  const std::uint64_t zeros = driver_.launches.back().value(3);
  EXPECT_NE(zeros, 0x40000U);
  driver_.calls.clear();
  ASSERT_TRUE(kernel->handle().launch(stream(0x77), {kX, kY}, workspace));
  EXPECT_THAT(driver_.calls, ElementsAre("cuLaunchKernelEx"));
  EXPECT_EQ(driver_.launches.back().value(3), zeros);

  driver_.failures["cuMemAlloc"] = CUDA_ERROR_OUT_OF_MEMORY;
  plan_.workspaces[0].bytes = 2 << 20;
  const auto larger = load();
  driver_.calls.clear();
  ASSERT_TRUE(larger->handle().launch(stream(0x77), {kX, kY}, workspace));
  EXPECT_THAT(driver_.calls, ElementsAre("cuMemAlloc", "cuMemsetD8Async", "cuLaunchKernelEx"));
  EXPECT_EQ(driver_.launches.back().value(3), 0x40000U) << "the launch fills its own";
  EXPECT_EQ(driver_.fills.back().to, 0x40000U);
}

TEST_F(LoadedKernelTest, StreamsAtOnceHaveAWorkspaceEach) {
  const auto kernel = load();
  for (const std::uint64_t handle : {0x77U, 0x88U, 0U}) {
    ASSERT_TRUE(kernel->handle().launch(stream(handle), {kX, kY}));
    EXPECT_EQ(driver_.pool_memory.back().taken_on, stream(handle));
    EXPECT_EQ(driver_.pool_memory.back().returned_on, stream(handle));
  }
}

TEST_F(LoadedKernelTest, KernelsShareOnePoolThatGoesWithTheLastOfThem) {
  auto one = load();
  auto other = load();
  EXPECT_EQ(driver_.alive.count("memory pool"), 1U);
  one.reset();
  EXPECT_EQ(driver_.alive.count("memory pool"), 1U);
  other.reset();
  EXPECT_EQ(driver_.alive.count("memory pool"), 0U);
  plan_.workspaces.clear();
  plan_.launches[0].arguments.pop_back();
  const auto without = load();
  EXPECT_EQ(driver_.alive.count("memory pool"), 0U) << "it needs no workspace";
}

TEST_F(LoadedKernelTest, ACheckedLaunchLooksAtLengthsAndTablesOnTheDevice) {
  TensorShape lengths = tensor("lengths", TensorRole::in, DType::int32, {2});
  lengths.values = {.least = 0, .most = 40};
  TensorShape table = tensor("table", TensorRole::in, DType::int32, {2, 3});
  table.values = {.least = 0, .most = 4, .counted_by = "lengths", .per = 16};
  plan_.tensors.push_back(lengths);
  plan_.tensors.push_back(table);
  const auto kernel = load();
  constexpr std::uint64_t kLengths = 0x30000;
  constexpr std::uint64_t kTable = 0x40000;
  const auto launched = [&](auto launch) {
    return (kernel->handle().*launch)(stream(0x77), {kX, kY, kLengths, kTable}, nullptr);
  };
  using Launch = Result<void> (Kernel::*)(void*, std::initializer_list<Arg>, void*) const;
  const Launch checked = &Kernel::launch_checked;
  const Launch unchecked = &Kernel::launch;

  driver_.integers = {{kLengths, {17, 0}}, {kTable, {4, 0, 77, 77, 77, 77}}};
  EXPECT_TRUE(launched(checked));
  driver_.integers[kTable][1] = 5;
  EXPECT_EQ(message(launched(checked)),
            "argument 3 of scale rows=32 (table): table[0,1] is 5, and may be 0 to 4");
  driver_.integers[kLengths][1] = 41;
  EXPECT_EQ(message(launched(checked)),
            "argument 2 of scale rows=32 (lengths): lengths[1] is 41, and may be 0 to 40");
  EXPECT_TRUE(launched(unchecked));
  driver_.capture_status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  EXPECT_TRUE(launched(checked)) << "there is nothing to look at yet";
  driver_.capture_status = CU_STREAM_CAPTURE_STATUS_NONE;
  driver_.failures["cuMemcpyDtoHAsync"] = CUDA_ERROR_INVALID_VALUE;
  EXPECT_THAT(message(launched(checked)), HasSubstr("cuMemcpyDtoHAsync"));
}

TEST_F(LoadedKernelTest, ACheckedLaunchPassesOverGapsAndRowsThatNoSequenceHas) {
  TensorShape lengths = tensor("lengths", TensorRole::in, DType::int32, {1});
  lengths.values = {.least = 0, .most = 32};
  TensorShape rows = tensor("rows", TensorRole::in, DType::int32, {1});
  rows.values = {.least = 0, .most = 2};
  TensorShape table = tensor("table", TensorRole::in, DType::int32, {3, 2});
  table.pitches = {3};
  table.values = {.least = 0, .most = 4, .counted_by = "lengths", .per = 16, .rows = "rows"};
  for (const TensorShape& shape : {lengths, rows, table}) plan_.tensors.push_back(shape);
  const auto kernel = load();
  constexpr std::uint64_t kLengths = 0x30000, kRows = 0x40000, kTable = 0x50000;
  const auto launched = [&] {
    return kernel->handle().launch_checked(stream(0x77), {kX, kY, kLengths, kRows, kTable},
                                           nullptr);
  };
  driver_.integers = {{kLengths, {32}}, {kRows, {1}}, {kTable, {77, 77, 77, 4, 0, 77, 77, 77}}};
  EXPECT_TRUE(launched());
  driver_.integers[kRows] = {2};
  EXPECT_EQ(message(launched()),
            "argument 4 of scale rows=32 (table): table[2,0] is 77, and may be 0 to 4");
  driver_.integers[kRows] = {3};
  EXPECT_EQ(message(launched()),
            "argument 3 of scale rows=32 (rows): rows[0] is 3, and may be 0 to 2");
}

TEST_F(LoadedKernelTest, AFailedLaunchGivesItsWorkspaceBack) {
  const auto kernel = load();
  driver_.failures["cuLaunchKernelEx"] = CUDA_ERROR_INVALID_VALUE;
  EXPECT_THAT(message(kernel->handle().launch(nullptr, {kX, kY})), HasSubstr("cuLaunchKernelEx"));
  EXPECT_EQ(driver_.alive.count("pool memory"), 0U);
}

TEST_F(LoadedKernelTest, WithoutMemoryForAWorkspaceTheLaunchSaysHowMuchItWanted) {
  const auto kernel = load();
  driver_.failures["cuMemAllocFromPoolAsync"] = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(message(kernel->handle().launch(nullptr, {kX, kY})),
            "scale rows=32 needs a workspace of 256 bytes, and none was given; from the pool: "
            "cuMemAllocFromPoolAsync: CUDA_ERROR_OUT_OF_MEMORY (out of memory)");
}

TEST_F(LoadedKernelTest, AGpuWithoutMemoryPoolsAsksForAWorkspace) {
  driver_.device_attributes[CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED] = 0;
  const auto kernel = load();
  const Result<void> launched = kernel->handle().launch(nullptr, {kX, kY});
  EXPECT_THAT(message(launched), AllOf(HasSubstr("workspace of 256 bytes, and none was given"),
                                       HasSubstr("GPU 0 has no memory pools")));
  EXPECT_EQ(launched.error().code, ErrorCode::unavailable);
  EXPECT_TRUE(
      kernel->handle().launch(nullptr, {kX, kY}, reinterpret_cast<void*>(std::uint64_t{0x40000})));
}

TEST_F(LoadedKernelTest, AContextOfAnotherGpuIsToldWithBoth) {
  const auto kernel = load();
  driver_.current_device = 1;
  EXPECT_THAT(message(kernel->handle().launch(nullptr, {kX, kY})),
              HasSubstr("current CUDA context is of GPU 1; the kernel was loaded for GPU 0"));
  EXPECT_TRUE(driver_.pool_memory.empty());
}

TEST_F(LoadedKernelTest, AThreadWithoutAContextIsToldWhichCallIsMissing) {
  const auto kernel = load();
  driver_.current = nullptr;
  driver_.failures["cuLaunchKernelEx"] = CUDA_ERROR_INVALID_CONTEXT;
  const auto hint = HasSubstr("call cuCtxSetCurrent or cudaSetDevice");
  void* workspace = reinterpret_cast<void*>(std::uint64_t{0x40000});
  EXPECT_THAT(message(kernel->handle().launch(nullptr, {kX, kY})), hint);
  EXPECT_THAT(message(kernel->handle().launch(nullptr, {kX, kY}, workspace)), hint);
  driver_.current = reinterpret_cast<CUcontext>(0xcc);
  EXPECT_THAT(message(kernel->handle().launch(nullptr, {kX, kY}, workspace)), ::testing::Not(hint))
      << "there is one";
}

}  // namespace
}  // namespace kernwright
