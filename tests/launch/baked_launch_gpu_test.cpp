#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include "context_gpu_test.h"
#include <kernwright/baked_launch.h>

namespace kernwright {
namespace {

constexpr std::int64_t kElements = 1000;

class BakedLaunchGpuTest : public ContextGpuTest {
 protected:
  std::shared_ptr<LoadedKernel> add_one() {
    ExecutionPlan plan;
    plan.tensors = {tensor("x", TensorRole::inout, DType::int32, {kElements})};
    plan.launches = {
        launch("add_one", {8, 1, 1}, {128, 1, 1},
               {refer(ArgumentKind::tensor, 0), number(ArgumentKind::int32, kElements)})};
    return kernel_of(plan, kGpuKernels);
  }
  DevicePointer ints(int value) {
    const DevicePointer address = allocate(kElements * 4);
    upload(address, std::vector<int>(kElements, value));
    return address;
  }
  std::vector<int> values(DevicePointer address) { return download<int>(address, kElements); }
  static std::vector<int> all(int value) { return std::vector<int>(kElements, value); }
};

TEST_F(BakedLaunchGpuTest, RebindsInTheMiddleOfLaunchesAndOutlivesItsKernel) {
  auto kernel = add_one();
  std::vector<DevicePointer> memory;
  for (int i = 0; i < 6; ++i) memory.push_back(ints(100 * i));
  Result<BakedLaunch> baked = kernel->handle().bake({memory[0]});
  ASSERT_TRUE(baked) << baked.error().message;
  kernel.reset();
  // Two of the six sets are used often, so that kept states and changed ones alternate.
  int launches[6] = {};
  for (int i = 0; i < 300; ++i) {
    const int set = i % 3 == 2 ? i / 3 % 6 : i % 3;
    const Result<void> bound = baked->rebind({memory[static_cast<std::size_t>(set)]});
    ASSERT_TRUE(bound) << bound.error().message;
    const Result<void> launched = baked->launch(stream_.get());
    ASSERT_TRUE(launched) << launched.error().message;
    ++launches[set];
  }
  wait(stream_.get());
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(values(memory[static_cast<std::size_t>(i)]), all(100 * i + launches[i])) << i;
  }
}

TEST_F(BakedLaunchGpuTest, FollowsTensorMapsToOtherAddresses) {
  if (!hopper()) GTEST_SKIP() << "needs sm_90, this is sm_" << device_->profile().sm_arch;
  const auto kernel = kernel_of(copy_box_plan(), kHopperKernels);
  std::optional<BakedLaunch> baked;
  for (int i = 0; i < 7; ++i) {
    const std::vector<std::uint16_t> matrix(512, static_cast<std::uint16_t>(i));
    const DevicePointer from = allocate(1024);
    const DevicePointer to = allocate(1024);
    upload(from, matrix);
    if (!baked) {
      Result<BakedLaunch> made = kernel->handle().bake({from, to});
      ASSERT_TRUE(made) << made.error().message;
      baked.emplace(*std::move(made));
    }
    ASSERT_TRUE(baked->rebind({from, to}));
    ASSERT_TRUE(baked->launch(stream_.get()));
    wait(stream_.get());
    EXPECT_EQ(download<std::uint16_t>(to, 512), matrix);
  }
}

TEST_F(BakedLaunchGpuTest, ZeroesItsWorkspaceAtEachLaunch) {
  ExecutionPlan plan;
  plan.tensors = {tensor("out", TensorRole::out, DType::int32, {1})};
  plan.workspaces = {{.name = "counter", .bytes = 4, .zeroed = true}};
  plan.launches = {
      launch("count_blocks", {37, 1, 1}, {32, 1, 1}, {refer(ArgumentKind::workspace, 0)}),
      launch("publish", {1, 1, 1}, {32, 1, 1},
             {refer(ArgumentKind::workspace, 0), refer(ArgumentKind::tensor, 0)})};
  const auto kernel = kernel_of(plan, kGpuKernels);
  const DevicePointer out = allocate(4);
  Result<BakedLaunch> baked = kernel->handle().bake({out});
  ASSERT_TRUE(baked) << baked.error().message;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(baked->launch(stream_.get()));
  wait(stream_.get());
  EXPECT_EQ(download<int>(out, 1), std::vector<int>{37});
}

TEST_F(BakedLaunchGpuTest, BuffersMayBeFreedAndAllocatedAgain) {
  const auto kernel = add_one();
  CUdeviceptr memory = 0;
  ASSERT_EQ(api_->mem_alloc(&memory, kElements * 4), CUDA_SUCCESS);
  Result<BakedLaunch> baked = kernel->handle().bake({memory});
  ASSERT_TRUE(baked) << baked.error().message;
  ASSERT_EQ(api_->mem_free(memory), CUDA_SUCCESS);
  EXPECT_FALSE(kernel->handle().launch_checked(stream_.get(), {memory}))
      << "freed memory is found before it is used";
  const DevicePointer again = ints(5);
  ASSERT_TRUE(baked->rebind({again}));
  ASSERT_TRUE(baked->launch(stream_.get()));
  wait(stream_.get());
  EXPECT_EQ(values(again), all(6));
}

TEST_F(BakedLaunchGpuTest, IsAddedToTheCallersCaptureAndRefusesALaunchThere) {
  const auto kernel = add_one();
  const DevicePointer memory = ints(0);
  Result<BakedLaunch> baked = kernel->handle().bake({memory});
  ASSERT_TRUE(baked) << baked.error().message;
  EXPECT_EQ(baked->add_to_capture(stream_.get()).error().code, ErrorCode::invalid_argument);

  ASSERT_EQ(begin_capture(), CUDA_SUCCESS);
  EXPECT_TRUE(baked->add_to_capture(stream_.get()));
  EXPECT_TRUE(kernel->handle().launch(stream_.get(), {memory}));
  CUgraph graph = nullptr;
  ASSERT_EQ(end_capture(&graph), CUDA_SUCCESS);
  const GraphHandle owned(*api_, graph);
  replay(graph, 3);
  EXPECT_EQ(values(memory), all(6));

  ASSERT_EQ(begin_capture(), CUDA_SUCCESS);
  const Result<void> launched = baked->launch(stream_.get());
  EXPECT_FALSE(launched);
  if (!launched) {
    EXPECT_NE(launched.error().message.find("add_to_capture"), std::string::npos)
        << launched.error().message;
  }
  graph = nullptr;
  end_capture(&graph);
  const GraphHandle spoilt(*api_, graph);
}

TEST_F(BakedLaunchGpuTest, NothingThatIsLoadedOrFreedEndsACapture) {
  CUstreamCaptureMode own = CU_STREAM_CAPTURE_MODE_GLOBAL;  // as in a thread of a user
  ASSERT_EQ(api_->exchange_capture_mode(&own), CUDA_SUCCESS);
  const auto kernel = add_one();
  const DevicePointer memory = ints(0);
  const DevicePointer other = ints(0);
  ExecutionPlan with_workspace;
  with_workspace.tensors = {tensor("out", TensorRole::out, DType::int32, {1})};
  with_workspace.workspaces = {{.name = "counter", .bytes = 4, .zeroed = true}};
  with_workspace.launches = {
      launch("count_blocks", {37, 1, 1}, {32, 1, 1}, {refer(ArgumentKind::workspace, 0)}),
      launch("publish", {1, 1, 1}, {32, 1, 1},
             {refer(ArgumentKind::workspace, 0), refer(ArgumentKind::tensor, 0)})};
  int expected = 0;
  for (const auto mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL}) {
    for (const bool elsewhere : {false, true}) {
      SCOPED_TRACE(std::string(mode == CU_STREAM_CAPTURE_MODE_GLOBAL ? "global" : "of a thread") +
                   (elsewhere ? ", another thread" : ", the same thread"));
      auto earlier = add_one();
      std::optional<BakedLaunch> baked_earlier = *earlier->handle().bake({other});
      const auto load_and_free = [&] {
        baked_earlier.reset();
        earlier.reset();
        const auto fresh = kernel_of(with_workspace, kGpuKernels);
        const Result<BakedLaunch> baked = fresh->handle().bake({other});
        EXPECT_TRUE(baked) << baked.error().message;
      };
      ASSERT_EQ(begin_capture(mode), CUDA_SUCCESS);
      EXPECT_TRUE(kernel->handle().launch(stream_.get(), {memory}));
      if (elsewhere) {
        std::thread([&] {
          EXPECT_EQ(api_->context_push_current(context_), CUDA_SUCCESS);
          load_and_free();
        }).join();
      } else {
        load_and_free();
      }
      EXPECT_TRUE(kernel->handle().launch(stream_.get(), {memory}));
      CUgraph graph = nullptr;
      ASSERT_EQ(end_capture(&graph), CUDA_SUCCESS) << "the capture was lost";
      const GraphHandle owned(*api_, graph);
      replay(graph, 3);
      expected += 2 * 3;
      EXPECT_EQ(values(memory), all(expected));
    }
  }
}

TEST_F(BakedLaunchGpuTest, SixteenThreadsLaunchOnStreamsOfTheirOwn) {
  constexpr int kThreads = 16;
  constexpr int kLaunches = 200;
  const auto kernel = add_one();
  std::vector<DevicePointer> memory;
  for (int i = 0; i < 2 * kThreads; ++i) memory.push_back(ints(i));
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const ContextScope scope(*api_, context_);
      const StreamHandle stream = make_stream();
      const std::size_t first = 2 * static_cast<std::size_t>(i);
      Result<BakedLaunch> baked = kernel->handle().bake({memory[first]});
      for (std::size_t j = 0; baked && j < kLaunches; ++j) {
        if (!baked->rebind({memory[first + j % 2]})) ++failures;
        if (!baked->launch(stream.get())) ++failures;
        if (!kernel->handle().launch(stream.get(), {memory[first + j % 2]})) ++failures;
      }
      if (!baked) ++failures;
      wait(stream.get());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  for (int i = 0; i < 2 * kThreads; ++i) {
    EXPECT_EQ(values(memory[static_cast<std::size_t>(i)]), all(i + kLaunches));
  }
}

}  // namespace
}  // namespace kernwright
