#include "context_gpu_test.h"
#include <kernwright/chain.h>

namespace kernwright {
namespace {

constexpr unsigned int kLateBlocks = 37;
constexpr int kEarlyValue = 77;

class ChainGpuTest : public ContextGpuTest {
 protected:
  /// Both let their successor start at once; the first writes late.
  std::shared_ptr<LoadedKernel> late_count() {
    ExecutionPlan plan;
    plan.tensors = {tensor("counter", TensorRole::inout, DType::int32, {1})};
    plan.launches = {
        launch("late_count", {kLateBlocks, 1, 1}, {32, 1, 1}, {refer(ArgumentKind::tensor, 0)})};
    plan.launches[0].waits = hopper();
    return kernel_of(plan, kGpuKernels);
  }
  std::shared_ptr<LoadedKernel> publish() {
    ExecutionPlan plan;
    plan.tensors = {tensor("counter", TensorRole::in, DType::int32, {1}),
                    tensor("out", TensorRole::out, DType::int32, {1})};
    plan.launches = {launch("publish", {1, 1, 1}, {32, 1, 1},
                            {refer(ArgumentKind::tensor, 0), refer(ArgumentKind::tensor, 1)})};
    plan.launches[0].waits = hopper();
    return kernel_of(plan, kGpuKernels);
  }
  std::shared_ptr<LoadedKernel> note_early() {
    ExecutionPlan plan;
    plan.tensors = {tensor("out", TensorRole::out, DType::int32, {1})};
    plan.launches = {
        launch("note_early", {1, 1, 1}, {32, 1, 1},
               {refer(ArgumentKind::tensor, 0), number(ArgumentKind::early, kEarlyValue)})};
    plan.launches[0].waits = hopper();
    return kernel_of(plan, kGpuKernels);
  }
  /// Counts three times and publishes.
  Result<Chain> build(DevicePointer counter, DevicePointer out) {
    ChainBuilder builder;
    const ChainSlot count = builder.parameter(reinterpret_cast<void*>(counter));
    const ChainSlot published = builder.parameter(reinterpret_cast<void*>(out));
    const auto counting = late_count();
    for (int i = 0; i < 3; ++i) builder.add(counting->handle(), {count});
    builder.add(publish()->handle(), {count, published});
    return builder.build();
  }
  DevicePointer zero() {
    const DevicePointer address = allocate(16);
    upload(address, std::vector<int>(4, 0));
    return address;
  }
  int read(DevicePointer address) { return download<int>(address, 1)[0]; }
};

TEST_F(ChainGpuTest, EveryPathRunsTheKernelsInOrder) {
  const DevicePointer counter = zero();
  const DevicePointer out = zero();
  Result<Chain> chain = build(counter, out);
  ASSERT_TRUE(chain) << chain.error().message;
  EXPECT_EQ(chain->paths().size(), hopper() ? 4U : 2U);
  int launches = 0;
  for (int round = 0; round < 3; ++round) {
    for (const ChainPath path : chain->paths()) {
      ASSERT_TRUE(chain->set_path(path));
      for (int i = 0; i < 4; ++i) {
        const Result<void> launched = chain->launch(stream_.get());
        ASSERT_TRUE(launched) << launched.error().message;
      }
      launches += 4;
      wait(stream_.get());
      EXPECT_EQ(read(out), launches * 3 * static_cast<int>(kLateBlocks)) << to_string(path);
    }
  }
  const DevicePointer other = zero();
  ASSERT_TRUE(chain->rebind({reinterpret_cast<void*>(other), reinterpret_cast<void*>(out)}));
  ASSERT_TRUE(chain->launch(stream_.get()));
  wait(stream_.get());
  EXPECT_EQ(read(out), 3 * static_cast<int>(kLateBlocks));
}

TEST_F(ChainGpuTest, OnlyEarlyLaunchesGetWhatIsMeantForThem) {
  const DevicePointer first = zero();
  const DevicePointer second = zero();
  const auto noting = note_early();
  ChainBuilder builder;
  builder.add(noting->handle(), {reinterpret_cast<void*>(first)});
  builder.add(noting->handle(), {reinterpret_cast<void*>(second)});
  Result<Chain> chain = builder.build();
  ASSERT_TRUE(chain) << chain.error().message;
  for (const ChainPath path : chain->paths()) {
    ASSERT_TRUE(chain->set_path(path));
    ASSERT_TRUE(chain->launch(stream_.get()));
    wait(stream_.get());
    const bool programmatic =
        path == ChainPath::programmatic_stream || path == ChainPath::programmatic_graph;
    EXPECT_EQ(read(first), 0) << to_string(path) << ": nothing is ahead";
    EXPECT_EQ(read(second), programmatic ? kEarlyValue : 0) << to_string(path);
  }
}

TEST_F(ChainGpuTest, WhatAKernelInFrontWritesIsNotReadAhead) {
  ExecutionPlan plan;
  plan.tensors = {tensor("in", TensorRole::in, DType::int32, {1}),
                  tensor("out", TensorRole::out, DType::int32, {2})};
  plan.launches = {launch("read_ahead", {1, 1, 1}, {32, 1, 1},
                          {refer(ArgumentKind::tensor, 0), refer(ArgumentKind::tensor, 1),
                           number(ArgumentKind::ahead, kEarlyValue)})};
  plan.launches[0].waits = hopper();
  plan.launches[0].ahead = {0};
  const auto reading = kernel_of(plan, kGpuKernels);
  const DevicePointer counter = zero();
  const DevicePointer settled = allocate(16);
  upload(settled, std::vector<int>(4, 5));
  const DevicePointer counted = zero();
  const DevicePointer copied = zero();
  const auto at = [](DevicePointer address) { return reinterpret_cast<const void*>(address); };
  ChainBuilder builder;
  const ChainSlot first = builder.parameter(at(counter));
  const ChainSlot second = builder.parameter(at(settled));
  builder.add(late_count()->handle(), {at(counter)});
  builder.add(reading->handle(), {first, at(counted)});
  builder.add(reading->handle(), {second, at(copied)});
  Result<Chain> chain = builder.build();
  ASSERT_TRUE(chain) << chain.error().message;
  int launches = 0;
  for (const ChainPath path : chain->paths()) {
    ASSERT_TRUE(chain->set_path(path));
    const bool programmatic =
        path == ChainPath::programmatic_stream || path == ChainPath::programmatic_graph;
    // With the two exchanged, the last kernel is the one that reads what is written.
    for (const bool exchanged : {false, true}) {
      ASSERT_TRUE(exchanged ? chain->rebind({at(settled), at(counter)})
                            : chain->rebind({at(counter), at(settled)}));
      for (int i = 0; i < 10; ++i) ASSERT_TRUE(chain->launch(stream_.get()));
      launches += 10;
      wait(stream_.get());
      const int sum = launches * static_cast<int>(kLateBlocks);
      const int early = programmatic ? kEarlyValue : 0;
      EXPECT_EQ(download<int>(exchanged ? copied : counted, 2), (std::vector<int>{sum, 0}))
          << to_string(path);
      EXPECT_EQ(download<int>(exchanged ? counted : copied, 2), (std::vector<int>{5, early}))
          << to_string(path);
    }
  }
}

TEST_F(ChainGpuTest, IsCapturedWithItsProgrammaticEdges) {
  const DevicePointer counter = zero();
  const DevicePointer out = zero();
  Result<Chain> chain = build(counter, out);
  ASSERT_TRUE(chain) << chain.error().message;
  int launches = 0;
  for (const ChainPath path : chain->paths()) {
    ASSERT_TRUE(chain->set_path(path));
    ASSERT_EQ(begin_capture(), CUDA_SUCCESS);
    const Result<void> added = chain->add_to_capture(stream_.get());
    EXPECT_TRUE(added) << added.error().message;
    CUgraph graph = nullptr;
    ASSERT_EQ(end_capture(&graph), CUDA_SUCCESS);
    const GraphHandle owned(*api_, graph);
    replay(graph, 5);
    launches += 5;
    EXPECT_EQ(read(out), launches * 3 * static_cast<int>(kLateBlocks)) << to_string(path);
  }
}

TEST_F(ChainGpuTest, TuningChoosesAmongAllPaths) {
  Result<Chain> chain = build(zero(), zero());
  ASSERT_TRUE(chain) << chain.error().message;
  const auto times = chain->tune(stream_.get());
  ASSERT_TRUE(times) << times.error().message;
  EXPECT_EQ(times->size(), chain->paths().size());
  for (const ChainTime& time : *times) EXPECT_GT(time.period_us, 0) << to_string(time.path);
}

}  // namespace
}  // namespace kernwright
