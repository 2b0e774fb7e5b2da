#include "device/cuda/cuda_device.h"

#include <algorithm>
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <thread>

#include "device/cuda/driver_device.h"
#include "tests/device/plans.h"
#include "tests/doubles/fake_driver.h"
#include "tests/results.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

/// The device over a driver that executes nothing.
class CudaDeviceTest : public ::testing::Test {
 protected:
  CudaDeviceTest() {
    driver_.kernels["first"] = {8};
    driver_.kernels["second"] = {8};
    plan_.tensors = {tensor("x", TensorRole::inout, DType::fp32, {64})};
    plan_.workspaces = {{.name = "locks", .bytes = 64, .zeroed = true}};
    plan_.launches = {launch("first", {2, 1, 1}, {32, 1, 1}, {refer(ArgumentKind::tensor, 0)}),
                      launch("second", {2, 1, 1}, {32, 1, 1}, {refer(ArgumentKind::workspace, 0)})};
    plan_.launches[1].programmatic = true;
    plan_.launches[1].cluster = {2, 1, 1};
    arguments_.tensors = {0x10000};
    arguments_.workspace = 0x20000;
  }

  std::unique_ptr<Device> open(std::chrono::milliseconds deadline = std::chrono::minutes(10)) {
    Result<std::unique_ptr<Device>> device = open_device(driver_.api(), 0, {.deadline = deadline});
    EXPECT_TRUE(device) << device.error().message;
    return std::move(*device);
  }
  std::shared_ptr<LoadedProgram> load(Device& device) {
    Result<std::shared_ptr<LoadedProgram>> program = device.load(FakeDriver::cubin(), plan_);
    EXPECT_TRUE(program) << program.error().message;
    return *program;
  }

  FakeDriver driver_;
  ExecutionPlan plan_;
  LaunchArguments arguments_;
};

TEST_F(CudaDeviceTest, DescribesItself) {
  const auto device = open();
  EXPECT_EQ(device->profile().name, "Fake GPU");
  EXPECT_EQ(device->profile().sm_arch, 90);
  EXPECT_EQ(device->profile().sm_count, 132);
  EXPECT_EQ(device->identity().uuid, "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf");
  EXPECT_FALSE(device->identity().driver_version.empty());
}

TEST_F(CudaDeviceTest, AMissingGpuIsUnavailable) {
  EXPECT_THAT(open_device(driver_.api(), 3, {}),
              Fails(ErrorCode::unavailable, StartsWith("GPU 3: cuDeviceGet")));
}

TEST_F(CudaDeviceTest, EverythingIsGivenBackOnceAndTheCallersContextRestored) {
  {
    const auto device = open();
    const auto buffer = must(device->allocate(256));
    EXPECT_EQ(buffer->bytes(), 256);
    const auto program = load(*device);
    ASSERT_TRUE(device->run(*program, arguments_));
    const auto units = must(device->prepare_timing(*program, {&arguments_, 1}, 3));
    ASSERT_TRUE(device->sample(*units));
    EXPECT_EQ(driver_.current, nullptr);
  }
  EXPECT_TRUE(driver_.alive.empty()) << *driver_.alive.begin();
  EXPECT_EQ(driver_.destroyed_twice, 0);
}

TEST_F(CudaDeviceTest, ABufferMayOutliveItsDevice) {
  std::unique_ptr<DeviceBuffer> buffer = must(open()->allocate(256));
  EXPECT_EQ(driver_.alive.count("stream"), 1U) << "the context keeps it";
  buffer.reset();
  EXPECT_TRUE(driver_.alive.empty());
}

TEST_F(CudaDeviceTest, RunZeroesLaunchesAndWaits) {
  const auto device = open();
  const auto program = load(*device);
  ASSERT_TRUE(device->run(*program, arguments_));
  ASSERT_EQ(driver_.fills.size(), 1U);
  EXPECT_EQ(driver_.fills[0].to, 0x20000U);
  ASSERT_EQ(driver_.launches.size(), 2U);
  EXPECT_EQ(driver_.launches[0].kernel, "first");
  EXPECT_EQ(driver_.launches[1].kernel, "second");
  EXPECT_EQ(driver_.launches[1].attributes.count(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION), 1U);
}

TEST_F(CudaDeviceTest, WhatIsEnqueuedIsNotWaitedFor) {
  const auto device = open();
  const auto program = load(*device);
  driver_.stream_state = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_TRUE(device->enqueue(*program, arguments_));
  EXPECT_TRUE(device->fill(0x10000, 0, 256));
  EXPECT_FALSE(device->lost());
  EXPECT_FALSE(device->wait());
  EXPECT_EQ(device->last_failure(), Outcome::illegal_address);
}

TEST_F(CudaDeviceTest, WorkCountsFromItsEnqueueingToTheWait) {
  const auto device = open();
  const auto program = load(*device);
  const auto units = must(device->prepare_timing(*program, {&arguments_, 1}, 3));
  EXPECT_EQ(device->take_use().busy_seconds, 0) << "loading and building are no work";
  constexpr double kSeconds = 0.02;
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  ASSERT_TRUE(device->enqueue(*program, arguments_));
  pause();
  ASSERT_TRUE(device->wait());
  EXPECT_GE(device->take_use().busy_seconds, kSeconds);
  ASSERT_TRUE(device->sample(*units));
  pause();
  ASSERT_TRUE(device->sample(*units));
  const DeviceUse use = device->take_use();
  EXPECT_GT(use.busy_seconds, 0);
  EXPECT_GE(use.longest_idle_seconds, kSeconds);
  EXPECT_NEAR(use.idle_seconds(), use.longest_idle_seconds, 1e-9);
}

TEST_F(CudaDeviceTest, BesideIsASecondStreamThatWaitsKnow) {
  const auto device = open(std::chrono::milliseconds(20));
  const auto program = load(*device);
  ASSERT_TRUE(device->enqueue(*program, arguments_));
  ASSERT_TRUE(device->enqueue_beside(*program, arguments_));
  ASSERT_TRUE(device->enqueue_beside(*program, arguments_));
  ASSERT_EQ(driver_.launches.size(), 6U);
  EXPECT_NE(driver_.launches[0].stream, driver_.launches[2].stream);
  EXPECT_EQ(driver_.launches[2].stream, driver_.launches[4].stream);
  EXPECT_TRUE(device->wait());
  driver_.side_stream_state = CUDA_ERROR_NOT_READY;
  EXPECT_FALSE(device->wait());
  EXPECT_EQ(device->last_failure(), Outcome::timed_out);
}

TEST_F(CudaDeviceTest, FencedMemoryHasAnUnmappedPageOnEitherSide) {
  {
    const auto device = open();
    const auto buffer = must(device->allocate_fenced(0x1234));
    EXPECT_EQ(buffer->bytes(), 0x2000);
    ASSERT_EQ(driver_.reserved.size(), 1U);
    ASSERT_EQ(driver_.mapped.size(), 1U);
    EXPECT_EQ(driver_.mapped[0].address, buffer->address());
    EXPECT_EQ(driver_.mapped[0].bytes, 0x2000U);
    EXPECT_EQ(driver_.reserved[0].address + 0x1000, driver_.mapped[0].address);
    EXPECT_EQ(driver_.reserved[0].bytes, 0x4000U);
    for (const char* step : {"cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
      driver_.failures = {{step, CUDA_ERROR_OUT_OF_MEMORY}};
      EXPECT_FALSE(device->allocate_fenced(1)) << step;
      EXPECT_EQ(device->last_failure(), Outcome::out_of_memory);
    }
    driver_.failures.clear();
  }
  EXPECT_TRUE(driver_.alive.empty()) << *driver_.alive.begin();
  EXPECT_EQ(driver_.destroyed_twice, 0);
}

TEST_F(CudaDeviceTest, ReferenceBuffersReachTheKernelByTensor) {
  plan_.launches = {launch("first", {1, 1, 1}, {32, 1, 1}, {refer(ArgumentKind::reference, 0)}),
                    launch("second", {1, 1, 1}, {32, 1, 1}, {refer(ArgumentKind::magnitude, 0)})};
  const auto device = open();
  const auto program = load(*device);
  EXPECT_THAT(device->run(*program, arguments_), Fails(HasSubstr("references")));
  arguments_.references = {0x70};
  arguments_.magnitudes = {0x80};
  ASSERT_TRUE(device->run(*program, arguments_));
  EXPECT_EQ(driver_.launches[0].arguments[0][0], std::byte{0x70});
  EXPECT_EQ(driver_.launches[1].arguments[0][0], std::byte{0x80});
}

TEST_F(CudaDeviceTest, AFailureThatDoesNotStickLeavesTheDeviceUsable) {
  const auto device = open();
  driver_.failures["cuMemAlloc"] = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_THAT(
      device->allocate(1 << 20),
      Fails("allocating 1048576 bytes: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory); "
            "3.2 GB of 137.4 GB are free"));
  EXPECT_EQ(device->last_failure(), Outcome::out_of_memory);
  EXPECT_FALSE(device->lost());
  driver_.failures.clear();
  EXPECT_TRUE(device->allocate(1 << 20));
}

TEST_F(CudaDeviceTest, ARefusedPlanIsALaunchFailureOfTheCandidate) {
  const auto device = open();
  plan_.launches[0].block = {4096, 1, 1};
  EXPECT_FALSE(device->load(FakeDriver::cubin(), plan_));
  EXPECT_EQ(device->last_failure(), Outcome::launch_failed);
  driver_.failures["cuLibraryLoadData"] = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_FALSE(device->load(FakeDriver::cubin(), plan_));
  EXPECT_EQ(device->last_failure(), Outcome::out_of_memory);
  EXPECT_EQ(driver_.alive.count("library"), 0U);
}

TEST_F(CudaDeviceTest, AnIllegalAddressLosesTheDeviceAndNothingIsFreed) {
  auto device = open();
  auto buffer = device->allocate(256);
  auto program = load(*device);
  driver_.stream_state = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_FALSE(device->run(*program, arguments_));
  EXPECT_EQ(device->last_failure(), Outcome::illegal_address);
  EXPECT_TRUE(device->lost());

  driver_.stream_state = CUDA_SUCCESS;
  const std::size_t calls = driver_.calls.size();
  EXPECT_FALSE(device->allocate(256));
  EXPECT_EQ(device->last_failure(), Outcome::device_lost);
  EXPECT_FALSE(device->run(*program, arguments_));
  EXPECT_FALSE(device->load(FakeDriver::cubin(), plan_));
  EXPECT_FALSE(device->prepare_timing(*program, {&arguments_, 1}, 1));
  buffer->reset();
  program.reset();
  device.reset();
  EXPECT_EQ(driver_.calls.size(), calls) << "the driver is left alone";
  EXPECT_EQ(driver_.alive.count("memory"), 1U);
  EXPECT_EQ(driver_.alive.count("library"), 1U);
}

TEST_F(CudaDeviceTest, AHangEndsAtTheDeadline) {
  const auto device = open(std::chrono::milliseconds(20));
  const auto program = load(*device);
  driver_.stream_state = CUDA_ERROR_NOT_READY;
  EXPECT_THAT(device->run(*program, arguments_), Fails(ErrorCode::timed_out));
  EXPECT_EQ(device->last_failure(), Outcome::timed_out);
  EXPECT_TRUE(device->lost());
}

TEST_F(CudaDeviceTest, TimingChainsEveryNodeAndRotatesTheSets) {
  const auto device = open();
  const auto program = load(*device);
  LaunchArguments other = arguments_;
  other.tensors = {0x11000};
  const LaunchArguments sets[] = {arguments_, other};
  const auto units = must(device->prepare_timing(*program, sets, 3));
  ASSERT_EQ(driver_.fills.size(), 3U);
  ASSERT_EQ(driver_.launches.size(), 6U);
  for (std::size_t unit = 0; unit < 3; ++unit) {
    const FakeDriver::Launch& first = driver_.launches[2 * unit];
    const FakeDriver::Launch& second = driver_.launches[2 * unit + 1];
    EXPECT_EQ(first.after, std::vector<CUgraphNode>{driver_.fills[unit].node});
    EXPECT_EQ(first.arguments[0][1], unit == 1 ? std::byte{0x10} : std::byte{0x00});
    EXPECT_TRUE(second.after.empty()) << "a programmatic edge takes the ordinary one's place";
    EXPECT_EQ(second.programmatic_after, first.node);
    EXPECT_EQ(second.attributes.at(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim.x, 2U);
    EXPECT_EQ(second.attributes.size(), 1U);
  }
}

TEST_F(CudaDeviceTest, APlanWithoutLaunchesIsTimedToo) {
  const auto device = open();
  const auto program = must(device->load(FakeDriver::cubin(), {}));
  const LaunchArguments none;
  EXPECT_TRUE(device->prepare_timing(*program, {&none, 1}, 1));
  EXPECT_TRUE(device->enqueue(*program, none));
  EXPECT_TRUE(driver_.launches.empty());
}

TEST_F(CudaDeviceTest, OnEveryLaunchPathTheSetsTakeTurns) {
  {
    const auto device = open();
    const auto program = load(*device);
    LaunchArguments other = arguments_;
    other.tensors = {0x11000};
    const LaunchArguments sets[] = {arguments_, other};
    const auto paths = must(device->time_launch_paths(*program, sets, 1e-3));
    ASSERT_EQ(paths.times.size(), 3U);
    ASSERT_TRUE(paths.best);
    for (const PathTime& time : paths.times) {
      EXPECT_GT(time.host_us, 0) << to_string(time.path);
      EXPECT_GT(time.period_us, 0) << to_string(time.path);
    }
    std::map<std::uint64_t, int> streamed;
    for (const FakeDriver::Launch& launched : driver_.launches) {
      if (!launched.in_graph && launched.kernel == "first") ++streamed[launched.value(0)];
    }
    ASSERT_EQ(streamed.size(), 2U);
    EXPECT_NEAR(streamed[0x10000], streamed[0x11000], 1);
    std::map<std::uint64_t, int> replayed;
    for (const CUgraphExec exec : driver_.graph_launches) {
      ++replayed[driver_.executables.at(exec).front().value(0)];
    }
    ASSERT_EQ(replayed.size(), 2U) << "of a graph each, and of one that is bound to both";
    EXPECT_NEAR(replayed[0x10000], replayed[0x11000], 2);
    EXPECT_GT(device->take_use().busy_seconds, 0);
  }
  EXPECT_TRUE(driver_.alive.empty()) << *driver_.alive.begin();
}

TEST_F(CudaDeviceTest, ALaunchPathThatFailsLeavesNothingBehind) {
  {
    const auto device = open();
    const auto program = load(*device);
    driver_.failures["cuGraphInstantiate"] = CUDA_ERROR_OUT_OF_MEMORY;
    EXPECT_THAT(device->time_launch_paths(*program, {&arguments_, 1}, 1e-3),
                Fails(HasSubstr("cuGraphInstantiate")));
    EXPECT_FALSE(device->lost());
  }
  EXPECT_TRUE(driver_.alive.empty()) << *driver_.alive.begin();
}

TEST_F(CudaDeviceTest, GraphsOfALostContextAreLeftAlone) {
  const auto device = open();
  const auto program = load(*device);
  driver_.stream_state = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_FALSE(device->time_launch_paths(*program, {&arguments_, 1}, 1e-3));
  EXPECT_TRUE(device->lost());
  EXPECT_EQ(device->last_failure(), Outcome::illegal_address);
  EXPECT_EQ(driver_.alive.count("graph"), 2U) << "one of the set, and one of all";
}

TEST_F(CudaDeviceTest, ASampleIsTheReplaysTimePerUnitBehindAGate) {
  const auto device = open();
  const auto program = load(*device);
  const auto units = must(device->prepare_timing(*program, {&arguments_, 1}, 4));
  driver_.elapsed_ms = 0.5F;
  driver_.calls.clear();
  for (cuuint32_t sample = 1; sample <= 2; ++sample) {
    const Sample sampled = must(device->sample(*units));
    EXPECT_DOUBLE_EQ(sampled.us, 125);
    EXPECT_EQ(driver_.gate_value, sample);
    EXPECT_EQ(*driver_.gate_word, sample) << "the gate is open again";
  }
  driver_.calls.resize(4);
  EXPECT_EQ(driver_.calls, (std::vector<std::string>{"cuStreamWaitValue32", "cuEventRecord",
                                                     "cuGraphLaunch", "cuEventRecord"}));
}

TEST_F(CudaDeviceTest, StampsOutsideOfTheEventsGiveTheClockAndCheckTheTimer) {
  driver_.kernels["kernwright_stamp"] = {8, 4};
  driver_.stamp_step = {1'980'000, 1'000'000};
  {
    const auto device = open();
    const auto program = load(*device);
    const auto units = must(device->prepare_timing(*program, {&arguments_, 1}, 4));
    driver_.calls.clear();
    driver_.elapsed_ms = 1;
    const Sample sampled = must(device->sample(*units));
    EXPECT_DOUBLE_EQ(sampled.sm_mhz, 1980);
    driver_.calls.resize(6);
    EXPECT_EQ(driver_.calls,
              (std::vector<std::string>{"cuStreamWaitValue32", "cuLaunchKernelEx", "cuEventRecord",
                                        "cuGraphLaunch", "cuEventRecord", "cuLaunchKernelEx"}));
    driver_.elapsed_ms = 0.9F;
    ASSERT_TRUE(device->sample(*units));
    const TimerCheck check = device->take_timer_check();
    EXPECT_EQ(check.samples, 2);
    EXPECT_EQ(check.disagreed, 1);
    EXPECT_NEAR(check.event_us, 900, 1e-3);
    EXPECT_DOUBLE_EQ(check.timer_us, 1000);
    EXPECT_EQ(device->take_timer_check().samples, 0);
  }
  EXPECT_TRUE(driver_.alive.empty()) << *driver_.alive.begin();
}

TEST_F(CudaDeviceTest, ReplaysBeyondTheQueueAreEnqueuedBehindAnOpenGate) {
  const auto device = open();
  const auto program = load(*device);
  const auto units = device->prepare_timing(*program, {&arguments_, 1}, 40);  // 120 nodes
  ASSERT_TRUE(units);
  (*units)->replays = 4;
  driver_.elapsed_ms = 1;
  driver_.calls.clear();
  const Sample sampled = must(device->sample(**units));
  EXPECT_DOUBLE_EQ(sampled.us, 6.25);
  EXPECT_EQ(std::count(driver_.calls.begin(), driver_.calls.end(), "cuGraphLaunch"), 4);
  EXPECT_EQ(driver_.open_launches, 2) << "the third would not fit behind the gate";
}

TEST_F(CudaDeviceTest, AFailedReplayStillOpensTheGate) {
  const auto device = open();
  const auto program = load(*device);
  const auto units = must(device->prepare_timing(*program, {&arguments_, 1}, 4));
  driver_.failures["cuGraphLaunch"] = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  EXPECT_FALSE(device->sample(*units));
  EXPECT_EQ(device->last_failure(), Outcome::launch_failed);
  EXPECT_EQ(*driver_.gate_word, driver_.gate_value);
}

TEST_F(CudaDeviceTest, AGateThatAToolKeepsShutIsOpenedAndNotUsedAgain) {
  const auto device = open();
  const auto program = load(*device);
  const auto units = must(device->prepare_timing(*program, {&arguments_, 1}, 4));
  driver_.launches_wait = true;
  ASSERT_TRUE(device->sample(*units));
  EXPECT_EQ(driver_.gate_value, 1U);
  EXPECT_TRUE(device->sample(*units));
  EXPECT_EQ(driver_.gate_value, 1U) << "the second sample had no gate";
}

TEST_F(CudaDeviceTest, WithoutStreamMemoryOperationsThereIsNoGate) {
  driver_.device_attributes[CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS] = 0;
  const auto device = open();
  const auto program = load(*device);
  const auto units = must(device->prepare_timing(*program, {&arguments_, 1}, 1));
  EXPECT_TRUE(device->sample(*units));
  EXPECT_EQ(driver_.gate_value, 0U);
}

TEST_F(CudaDeviceTest, LongGraphsRunWithoutTheGate) {
  const auto device = open();
  const auto program = load(*device);
  const auto units = device->prepare_timing(*program, {&arguments_, 1}, 86);  // of three nodes
  ASSERT_TRUE(units);
  EXPECT_TRUE(device->sample(**units));
  EXPECT_EQ(driver_.gate_value, 0U);
}

TEST_F(CudaDeviceTest, NothingToTimeIsAnError) {
  const auto device = open();
  const auto program = load(*device);
  EXPECT_FALSE(device->prepare_timing(*program, {}, 4));
  EXPECT_FALSE(device->prepare_timing(*program, {&arguments_, 1}, 0));
}

}  // namespace
}  // namespace kernwright
