#include <thread>
#include <vector>

#include "context_gpu_test.h"
#include <kernwright/baked_launch.h>

namespace kernwright {
namespace {

constexpr unsigned int kBlocks = 37;

/// Launches that are given no workspace. The kernel counts its blocks in one, and a second kernel
/// publishes the count: two launches that shared the memory at once would publish other numbers.
class LoadedKernelGpuTest : public ContextGpuTest {
 protected:
  /// With `keeps` the second kernel leaves the counter zero, else it is zeroed before each launch.
  std::shared_ptr<LoadedKernel> counter(bool keeps = false) {
    ExecutionPlan plan;
    plan.tensors = {tensor("out", TensorRole::out, DType::int32, {1})};
    plan.workspaces = {{.name = "counter", .bytes = 4, .zeroed = !keeps, .kept_zero = keeps}};
    plan.launches = {
        launch("count_blocks", {kBlocks, 1, 1}, {32, 1, 1}, {refer(ArgumentKind::workspace, 0)}),
        launch(keeps ? "publish_and_zero" : "publish", {1, 1, 1}, {32, 1, 1},
               {refer(ArgumentKind::workspace, 0), refer(ArgumentKind::tensor, 0)})};
    return kernel_of(plan, kGpuKernels);
  }
  void fill(DevicePointer address, std::size_t bytes, unsigned char value) {
    ASSERT_EQ(api_->memset_d8_async(address, value, bytes, stream_.get()), CUDA_SUCCESS);
    wait(stream_.get());
  }
  int count_at(DevicePointer address) { return download<int>(address, 1).front(); }
};

TEST_F(LoadedKernelGpuTest, TakesItsWorkspaceFromThePoolOnAnyStream) {
  const auto kernel = counter();
  for (CUstream stream : {stream_.get(), CUstream{nullptr}, CU_STREAM_PER_THREAD}) {
    const DevicePointer out = allocate(4);
    for (int i = 0; i < 100; ++i) {
      const Result<void> launched = kernel->handle().launch(stream, {out});
      ASSERT_TRUE(launched) << launched.error().message;
    }
    wait(stream);
    EXPECT_EQ(count_at(out), static_cast<int>(kBlocks));
  }
}

TEST_F(LoadedKernelGpuTest, StreamsOfManyThreadsDoNotShareAWorkspace) {
  constexpr std::size_t kThreads = 8;
  constexpr std::size_t kLaunches = 200;
  const auto kernel = counter();
  std::vector<DevicePointer> out;
  for (std::size_t i = 0; i < kThreads * kLaunches; ++i) out.push_back(allocate(4));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const ContextScope scope(*api_, context_);
      const StreamHandle stream = make_stream();
      for (std::size_t j = 0; j < kLaunches; ++j) {
        EXPECT_TRUE(kernel->handle().launch(stream.get(), {out[i * kLaunches + j]}));
      }
      wait(stream.get());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const DevicePointer address : out) {
    ASSERT_EQ(count_at(address), static_cast<int>(kBlocks));
  }
}

TEST_F(LoadedKernelGpuTest, ACapturedGraphHoldsItsWorkspaceAndIsReplayed) {
  auto kernel = counter();
  const DevicePointer one = allocate(4);
  const DevicePointer other = allocate(4);
  ASSERT_EQ(begin_capture(), CUDA_SUCCESS);
  for (const DevicePointer out : {one, other}) {
    const Result<void> launched = kernel->handle().launch(stream_.get(), {out});
    EXPECT_TRUE(launched) << launched.error().message;
  }
  CUgraph graph = nullptr;
  ASSERT_EQ(end_capture(&graph), CUDA_SUCCESS);
  {
    const GraphHandle owned(*api_, graph);
    replay(graph, 5);
  }
  EXPECT_EQ(count_at(one), static_cast<int>(kBlocks));
  EXPECT_EQ(count_at(other), static_cast<int>(kBlocks));
}

TEST_F(LoadedKernelGpuTest, ZerosAreOfAStreamAndOfAGraph) {
  const auto kernel = counter(true);
  const DevicePointer workspace = allocate(256);
  fill(workspace, 256, 0xFF);  // nobody looks at it
  const auto given = reinterpret_cast<void*>(workspace);
  constexpr std::size_t kStreams = 6;
  constexpr std::size_t kLaunches = 100;
  std::vector<DevicePointer> out;
  for (std::size_t i = 0; i < (kStreams + 2) * kLaunches; ++i) out.push_back(allocate(4));
  ASSERT_EQ(begin_capture(), CUDA_SUCCESS);
  for (std::size_t j = 0; j < kLaunches; ++j) {
    EXPECT_TRUE(kernel->handle().launch(stream_.get(), {out[j]}, given));
  }
  CUgraph graph = nullptr;
  ASSERT_EQ(end_capture(&graph), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  {
    const GraphHandle owned(*api_, graph);
    std::size_t nodes = 0;
    const auto count = reinterpret_cast<CUresult (*)(CUgraph, CUgraphNode*, std::size_t*)>(
        library_->symbol("cuGraphGetNodes"));
    ASSERT_EQ(count(graph, nullptr, &nodes), CUDA_SUCCESS);
    EXPECT_EQ(nodes, 2 * kLaunches) << "no fill among them";
    ASSERT_EQ(api_->graph_instantiate(&exec, graph, 0), CUDA_SUCCESS);
  }
  const GraphExecHandle owned(*api_, exec);
  std::vector<StreamHandle> streams;
  for (std::size_t i = 0; i < kStreams; ++i) streams.push_back(make_stream());
  for (std::size_t j = 0; j < kLaunches; ++j) {
    if (j % 10 == 0) {
      ASSERT_EQ(api_->graph_launch(exec, stream_.get()), CUDA_SUCCESS);
    }
    EXPECT_TRUE(kernel->handle().launch(stream_.get(), {out[kLaunches + j]}, given));
    for (std::size_t i = 0; i < kStreams; ++i) {
      const DevicePointer to = out[(i + 2) * kLaunches + j];
      EXPECT_TRUE(kernel->handle().launch(streams[i].get(), {to}, given));
    }
  }
  wait(stream_.get());
  for (const StreamHandle& stream : streams) wait(stream.get());
  for (const DevicePointer address : out) {
    ASSERT_EQ(count_at(address), static_cast<int>(kBlocks));
  }
}

TEST_F(LoadedKernelGpuTest, AThreadWithoutAContextIsToldWhichCallIsMissing) {
  const auto kernel = counter();
  const DevicePointer out = allocate(4);
  const DevicePointer workspace = allocate(256);
  std::thread([&] {
    for (void* given : {static_cast<void*>(nullptr), reinterpret_cast<void*>(workspace)}) {
      const Result<void> launched = kernel->handle().launch(nullptr, {out}, given);
      ASSERT_FALSE(launched);
      EXPECT_NE(launched.error().message.find("cuCtxSetCurrent"), std::string::npos)
          << launched.error().message;
    }
  }).join();
}

}  // namespace
}  // namespace kernwright
