#include "tests/doubles/fake_device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <gtest/gtest.h>

#include "plans.h"

namespace kernwright {
namespace {

class FakeDeviceTest : public ::testing::Test {
 protected:
  FakeDeviceTest() {
    options_.landscape = [this](std::string_view, const ExecutionPlan&) { return behavior_; };
    plan_.tensors = {tensor("a", TensorRole::in, DType::bf16, {4}),
                     tensor("d", TensorRole::out, DType::bf16, {4})};
    plan_.workspaces = {{.name = "locks", .bytes = 8, .zeroed = true}};
    plan_.launches = {launch("kernel", {1, 1, 1}, {32, 1, 1}, {})};
  }

  void open() {
    device_ = make_fake_device(options_, clock_);
    for (auto* buffer : {&a_, &d_, &workspace_}) {
      *buffer = std::move(*device_->allocate(256));
      ASSERT_TRUE(device_->fill((*buffer)->address(), 0xff, 256));
    }
    arguments_.tensors = {a_->address(), d_->address()};
    arguments_.workspace = workspace_->address();
  }
  Result<void> run(std::string_view cubin = "x") {
    program_ = *device_->load(cubin, plan_);
    return device_->run(*program_, arguments_);
  }
  std::uint16_t first_of(const DeviceBuffer& buffer) {
    std::array<std::byte, 2> bytes{};
    EXPECT_TRUE(device_->download(bytes, buffer.address()));
    std::uint16_t value = 0;
    std::memcpy(&value, bytes.data(), 2);
    return value;
  }

  FakeBehavior behavior_{.time_us = 10};
  ManualClock clock_;
  FakeDeviceOptions options_;
  ExecutionPlan plan_;
  LaunchArguments arguments_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceBuffer> a_;
  std::unique_ptr<DeviceBuffer> d_;
  std::unique_ptr<DeviceBuffer> workspace_;
  std::shared_ptr<LoadedProgram> program_;
};

TEST_F(FakeDeviceTest, MemoryKeepsWhatIsUploaded) {
  open();
  const std::array<std::byte, 3> given{std::byte{1}, std::byte{2}, std::byte{3}};
  std::array<std::byte, 3> back{};
  ASSERT_TRUE(device_->upload(a_->address() + 5, given));
  ASSERT_TRUE(device_->download(back, a_->address() + 5));
  EXPECT_EQ(back, given);
}

TEST_F(FakeDeviceTest, RefusesToReachBeyondAnAllocation) {
  open();
  std::array<std::byte, 8> bytes{};
  EXPECT_FALSE(device_->upload(a_->address() + 250, bytes));
  EXPECT_FALSE(device_->download(bytes, 0));
  EXPECT_FALSE(device_->fill(a_->address(), 0, 257));
  arguments_.tensors[1] = d_->address() + 256;
  EXPECT_FALSE(run());
}

TEST_F(FakeDeviceTest, MemoryHasAnEnd) {
  options_.profile.memory_bytes = 1024;
  open();
  EXPECT_TRUE(device_->allocate(256));
  EXPECT_FALSE(device_->allocate(257));
  EXPECT_EQ(device_->last_failure(), Outcome::out_of_memory);
  EXPECT_FALSE(device_->lost());
}

TEST_F(FakeDeviceTest, ARunFillsOutputsWithOnesAndZeroesWorkspaces) {
  open();
  ASSERT_TRUE(run());
  EXPECT_EQ(first_of(*d_), 0x3f80);
  EXPECT_EQ(first_of(*a_), 0xffff);
  EXPECT_EQ(first_of(*workspace_), 0);
}

TEST_F(FakeDeviceTest, AReferenceRunFillsItsFloatBuffers) {
  open();
  const auto reference = std::move(*device_->allocate(16));
  arguments_.references = {0, reference->address()};
  ASSERT_TRUE(run());
  std::array<std::byte, 16> bytes{};
  ASSERT_TRUE(device_->download(bytes, reference->address()));
  std::array<float, 4> values{};
  std::memcpy(values.data(), bytes.data(), 16);
  EXPECT_EQ(values, (std::array<float, 4>{1, 1, 1, 1}));
}

TEST_F(FakeDeviceTest, ComputeDecidesTheEffectOfACorrectRun) {
  options_.compute = [](const ExecutionPlan&, const LaunchArguments& arguments) {
    *reinterpret_cast<std::uint16_t*>(arguments.tensors[1]) = 0x1234;
  };
  open();
  ASSERT_TRUE(run());
  EXPECT_EQ(first_of(*d_), 0x1234);
}

TEST_F(FakeDeviceTest, AWrongResultRunsButWritesNothingRight) {
  behavior_.outcome = Outcome::wrong_result;
  open();
  ASSERT_TRUE(run());
  EXPECT_NE(first_of(*d_), 0x3f80);
  EXPECT_NE(first_of(*d_), 0xffff);
}

TEST_F(FakeDeviceTest, AnInjectedFailureLosesTheDevice) {
  for (const Outcome outcome : {Outcome::illegal_address, Outcome::launch_failed,
                                Outcome::timed_out, Outcome::device_lost}) {
    behavior_.outcome = outcome;
    open();
    EXPECT_FALSE(run());
    EXPECT_EQ(device_->last_failure(), outcome);
    EXPECT_TRUE(device_->lost());
    EXPECT_FALSE(device_->allocate(16));
    EXPECT_EQ(device_->last_failure(), Outcome::device_lost);
  }
}

TEST_F(FakeDeviceTest, SamplesFollowTheLandscapeAndMoveTheClock) {
  open();
  ASSERT_TRUE(run());
  const double before = clock_.now_us();
  const auto units = std::move(*device_->prepare_timing(*program_, {&arguments_, 1}, 8));
  EXPECT_DOUBLE_EQ(device_->sample(*units)->us, 10);
  EXPECT_DOUBLE_EQ(clock_.now_us() - before, 80);
}

TEST_F(FakeDeviceTest, AFaultLosesTheDevice) {
  options_.faults = [this](const ExecutionPlan&, const LaunchArguments& arguments) {
    return arguments.tensors[0] == a_->address();
  };
  open();
  EXPECT_FALSE(run());
  EXPECT_EQ(device_->last_failure(), Outcome::illegal_address);
  EXPECT_FALSE(device_->wait());
}

TEST_F(FakeDeviceTest, TheTimersDisagreeWhereToldTo) {
  options_.timer_error = 0.05;
  open();
  ASSERT_TRUE(run());
  const auto units = std::move(*device_->prepare_timing(*program_, {&arguments_, 1}, 100));
  ASSERT_TRUE(device_->sample(*units));
  EXPECT_EQ(device_->take_timer_check().disagreed, 1);
  EXPECT_EQ(device_->take_timer_check().samples, 0);
}

TEST_F(FakeDeviceTest, NoiseIsBoundedAndRepeats) {
  options_.noise = 0.1;
  std::vector<double> runs[2];
  for (auto& samples : runs) {
    open();
    ASSERT_TRUE(run());
    const auto units = std::move(*device_->prepare_timing(*program_, {&arguments_, 1}, 8));
    for (int i = 0; i < 100; ++i) samples.push_back(device_->sample(*units)->us);
  }
  EXPECT_EQ(runs[0], runs[1]);
  const auto [low, high] = std::minmax_element(runs[0].begin(), runs[0].end());
  EXPECT_GE(*low, 9);
  EXPECT_LE(*high, 11);
  EXPECT_GT(*high - *low, 1);
}

}  // namespace
}  // namespace kernwright
