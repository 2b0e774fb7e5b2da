#include <atomic>
#include <thread>

#include "device/cuda/launcher.h"
#include "device/driver/handles.h"
#include "tests/device/gpu_fixture.h"
#include "tests/results.h"

namespace kernwright {
namespace {

class LauncherGpuTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    // The user's side: the primary context, which the device has retained too.
    api_ = *load_driver();
    context_ = primary_context(*api_, 0).value();
  }

  void wait(CUstream stream) const {
    CUresult state = CUDA_ERROR_NOT_READY;
    while (state == CUDA_ERROR_NOT_READY) state = api_->stream_query(stream);
    EXPECT_EQ(state, CUDA_SUCCESS);
  }

  const DriverApi* api_ = nullptr;
  CUcontext context_ = nullptr;
};

TEST_F(LauncherGpuTest, ManyThreadsLaunchOneKernelOnStreamsOfTheirOwn) {
  constexpr int kThreads = 8;
  constexpr int kLaunches = 200;
  constexpr std::int64_t kElements = 1000;
  ExecutionPlan plan;
  plan.tensors = {tensor("x", TensorRole::inout, DType::int32, {kElements})};
  plan.launches = {
      launch("add_one", {8, 1, 1}, {128, 1, 1},
             {refer(ArgumentKind::tensor, 0), number(ArgumentKind::int32, kElements)})};
  const auto launcher = must(Launcher::load(compile(kGpuKernels), plan));

  std::vector<DevicePointer> memory;
  for (int i = 0; i < kThreads; ++i) {
    memory.push_back(allocate(kElements * 4));
    upload(memory.back(), std::vector<int>(kElements, i));
  }
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const ContextScope scope(*api_, context_);
      CUstream stream = nullptr;
      if (api_->stream_create(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) ++failures;
      const StreamHandle owned(*api_, stream);
      const DevicePointer tensors[] = {memory[static_cast<std::size_t>(i)]};
      for (int j = 0; j < kLaunches; ++j) {
        if (!launcher->launch(stream, tensors, {}, 0)) ++failures;
      }
      wait(stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_EQ(download<int>(memory[static_cast<std::size_t>(i)], kElements),
              std::vector<int>(kElements, i + kLaunches));
  }
}

TEST_F(LauncherGpuTest, LoadsTensorMapsWithNoContextCurrentAndTakesAnyAddressLater) {
  if (!hopper()) GTEST_SKIP() << "needs sm_90, this is sm_" << device_->profile().sm_arch;
  CUcontext current = nullptr;
  ASSERT_EQ(api_->context_get_current(&current), CUDA_SUCCESS);
  ASSERT_EQ(current, nullptr);
  const auto launcher = must(Launcher::load(compile(kHopperKernels), copy_box_plan()));

  const ContextScope scope(*api_, context_);
  CUstream stream = nullptr;
  ASSERT_EQ(api_->stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  const StreamHandle owned(*api_, stream);
  for (int i = 1; i <= 3; ++i) {
    const std::vector<std::uint16_t> matrix(512, static_cast<std::uint16_t>(i));
    const DevicePointer tensors[] = {allocate(1024), allocate(1024)};
    upload(tensors[0], matrix);
    must(launcher->launch(stream, tensors, {}, 0));
    wait(stream);
    EXPECT_EQ(download<std::uint16_t>(tensors[1], 512), matrix);
  }
}

TEST_F(LauncherGpuTest, AKernelWithMoreParametersThanThePlanGivesIsRefused) {
  ExecutionPlan plan;
  plan.tensors = {tensor("x", TensorRole::inout, DType::int32, {32})};
  plan.launches = {launch("add_one", {1, 1, 1}, {32, 1, 1}, {refer(ArgumentKind::tensor, 0)})};
  EXPECT_THAT(Launcher::load(compile(kGpuKernels), plan),
              Fails("kernel add_one takes 2 parameters; the launch gives 1"));
}

}  // namespace
}  // namespace kernwright
