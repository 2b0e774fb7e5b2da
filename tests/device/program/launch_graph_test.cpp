#include "device/program/launch_graph.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <set>

#include "device/cuda/driver_device.h"
#include "tests/device/plans.h"
#include "tests/doubles/fake_driver.h"
#include "tests/results.h"

namespace kernwright {
namespace {

/// A sequence of `first`, whose plan has two launches, and `second`.
class LaunchGraphTest : public ::testing::Test {
 protected:
  LaunchGraphTest() {
    driver_.current = reinterpret_cast<CUcontext>(0xcc);
    ExecutionPlan plan;
    plan.tensors = {tensor("x", TensorRole::in, DType::fp32, {32}),
                    tensor("y", TensorRole::out, DType::fp32, {32})};
    plan.launches = {launch("one", {1, 1, 1}, {32, 1, 1}, {refer(ArgumentKind::tensor, 0)}),
                     launch("two", {1, 1, 1}, {32, 1, 1},
                            {refer(ArgumentKind::tensor, 1), refer(ArgumentKind::workspace, 0)})};
    plan.workspaces = {{.name = "partials", .bytes = 64, .zeroed = false}};
    first_ = load(plan);
    ExecutionPlan other;
    other.tensors = {tensor("z", TensorRole::inout, DType::fp32, {32})};
    other.scalars = {{.name = "alpha", .dtype = DType::fp64, .default_value = 1, .when = {}}};
    other.launches = {launch("three", {1, 1, 1}, {32, 1, 1},
                             {refer(ArgumentKind::tensor, 0), refer(ArgumentKind::scalar, 0)})};
    second_ = load(other);
  }

  std::unique_ptr<Launcher> load(const ExecutionPlan& plan) {
    for (const LaunchPlan& it : plan.launches) {
      driver_.kernels[it.kernel] = parameter_sizes(plan, it);
    }
    return must(load_launcher(driver_.api(), FakeDriver::cubin(), plan, 0));
  }

  Result<std::unique_ptr<LaunchGraph>> make() {
    LaunchArguments first;
    first.tensors = {0x100, 0x200};
    first.workspace = kWorkspace;
    LaunchArguments second;
    second.tensors = {0x300};
    second.scalars = {1};
    return LaunchGraph::make(driver_.api(),
                             {{&first_->program(), first}, {&second_->program(), second}});
  }

  /// Rebinds to tensors x, y and z.
  static DriverStatus rebind(LaunchGraph& graph, DevicePointer x, DevicePointer y, DevicePointer z,
                             double scalar = 1) {
    const std::array<DevicePointer, 2> first{x, y};
    const std::array<DevicePointer, 1> second{z};
    const std::array<double, 1> alpha{scalar};
    const std::array<ArgumentView, 2> views{ArgumentView(first, {}, kWorkspace),
                                            ArgumentView(second, alpha, 0)};
    return graph.rebind(views);
  }

  /// Returns what the next launch would run: the first argument of each kernel.
  std::vector<std::uint64_t> launched(const LaunchGraph& graph) {
    EXPECT_TRUE(graph.launch(nullptr));
    std::vector<std::uint64_t> first_arguments;
    for (const FakeDriver::Launch& node : driver_.executables[driver_.graph_launches.back()]) {
      first_arguments.push_back(node.value(0));
    }
    return first_arguments;
  }
  std::ptrdiff_t changes() const {
    return std::ranges::count(driver_.calls, "cuGraphExecKernelNodeSetParams");
  }

  static constexpr DevicePointer kWorkspace = 0x5000;
  FakeDriver driver_;
  std::unique_ptr<Launcher> first_;
  std::unique_ptr<Launcher> second_;
};

using Addresses = std::vector<std::uint64_t>;

TEST_F(LaunchGraphTest, WhatIsKeptZeroIsZeroedOnceAheadOfAllLaunches) {
  ExecutionPlan plan;
  plan.launches = {launch("tickets", {1, 1, 1}, {32, 1, 1}, {refer(ArgumentKind::workspace, 0)})};
  plan.workspaces = {{.name = "tickets", .bytes = 64, .zeroed = false, .kept_zero = true}};
  const std::unique_ptr<Launcher> kept = load(plan);
  LaunchArguments arguments;
  arguments.workspace = kWorkspace;
  const auto zeroings = [&](std::string_view call) {
    return std::ranges::count(driver_.calls, call);
  };
  const auto graph = must(LaunchGraph::make(driver_.api(), {{&kept->program(), arguments}}));
  EXPECT_EQ(zeroings("cuMemsetD8Async"), 1);
  EXPECT_TRUE(graph->launch(nullptr));
  EXPECT_TRUE(graph->launch(nullptr));
  EXPECT_EQ(zeroings("cuMemsetD8Async"), 1);
  EXPECT_EQ(zeroings("cuGraphAddMemsetNode"), 0);
  // On a stream the memory may have held anything.
  EXPECT_TRUE(graph->enqueue(nullptr));
  EXPECT_EQ(zeroings("cuMemsetD8Async"), 2);
}

TEST_F(LaunchGraphTest, LaunchesAllStepsInOneCall) {
  const auto graph = must(make());
  driver_.calls.clear();
  EXPECT_EQ(launched(*graph), (Addresses{0x100, 0x200, 0x300}));
  EXPECT_EQ(driver_.calls, std::vector<std::string>{"cuGraphLaunch"});
  const auto& nodes = driver_.executables[driver_.graph_launches.back()];
  EXPECT_EQ(nodes[1].after, std::vector<CUgraphNode>{nodes[0].node});
  EXPECT_EQ(nodes[2].after, std::vector<CUgraphNode>{nodes[1].node});
}

TEST_F(LaunchGraphTest, RebindingChangesOnlyTheStepsThatDiffer) {
  const auto graph = must(make());
  ASSERT_TRUE(rebind(*graph, 0x100, 0x200, 0x310));
  EXPECT_EQ(changes(), 1);
  EXPECT_EQ(launched(*graph), (Addresses{0x100, 0x200, 0x310}));
}

TEST_F(LaunchGraphTest, AlternatingSetsOfPointersCostNoDriverCall) {
  const auto graph = must(make());
  for (DevicePointer i = 1; i < LaunchGraph::kStates; ++i) {
    ASSERT_TRUE(rebind(*graph, 0x100, 0x200 + i * 16, 0x300));
  }
  const std::ptrdiff_t before = changes();
  for (DevicePointer i = 0; i < 20; ++i) {
    const DevicePointer y = 0x200 + i * 7 % LaunchGraph::kStates * 16;
    ASSERT_TRUE(rebind(*graph, 0x100, y, 0x300));
    EXPECT_EQ(launched(*graph), (Addresses{0x100, y, 0x300}));
  }
  EXPECT_EQ(changes(), before);
}

TEST_F(LaunchGraphTest, SetsThatComeOnceLeaveTheOthersReady) {
  const auto graph = must(make());
  ASSERT_TRUE(rebind(*graph, 0x110, 0x200, 0x300));
  ASSERT_TRUE(rebind(*graph, 0x120, 0x200, 0x300));
  std::set<CUgraphExec> used;
  for (DevicePointer i = 0; i < 10; ++i) {
    ASSERT_TRUE(rebind(*graph, 0x1000 + i * 16, 0x200, 0x300));
    EXPECT_EQ(launched(*graph)[0], 0x1000 + i * 16);
    used.insert(driver_.graph_launches.back());
  }
  EXPECT_EQ(used.size(), 1U) << "changing one again and again is cheaper";
  const std::ptrdiff_t before = changes();
  for (const DevicePointer x : {0x100U, 0x110U, 0x120U}) {
    ASSERT_TRUE(rebind(*graph, x, 0x200, 0x300));
  }
  EXPECT_EQ(changes(), before);
}

TEST_F(LaunchGraphTest, MoreSetsInTurnThanAreRememberedAreChangedEachTime) {
  const auto graph = must(make());
  ASSERT_TRUE(rebind(*graph, 0x110, 0x200, 0x300));
  ASSERT_TRUE(rebind(*graph, 0x120, 0x200, 0x300));
  constexpr DevicePointer kSets = LaunchGraph::kStates + 1;
  for (DevicePointer i = 0; i < 3 * kSets; ++i) {
    const std::ptrdiff_t before = changes();
    ASSERT_TRUE(rebind(*graph, 0x1000 + i % kSets * 16, 0x200, 0x300));
    EXPECT_EQ(changes(), before + 2) << "both kernels of the step change";
  }
}

TEST_F(LaunchGraphTest, ScalarsAreTheSameWhereTheirBitsAre) {
  const auto graph = must(make());
  const auto alpha = [&] {
    EXPECT_TRUE(graph->launch(nullptr));
    return driver_.executables[driver_.graph_launches.back()][2].value(1);
  };
  for (const double scalar : {0.0, -0.0, std::nan("")}) {
    const std::ptrdiff_t before = changes();
    ASSERT_TRUE(rebind(*graph, 0x100, 0x200, 0x300, scalar));
    EXPECT_EQ(alpha(), std::bit_cast<std::uint64_t>(scalar));
    EXPECT_EQ(changes(), before + 1);
    ASSERT_TRUE(rebind(*graph, 0x100, 0x200, 0x300, scalar));
    EXPECT_EQ(changes(), before + 1);
  }
}

TEST_F(LaunchGraphTest, ASetThatComesBackTakesThePlaceOfTheOneNotUsedForLongest) {
  const auto graph = must(make());
  for (const DevicePointer x : {0x110U, 0x120U, 0x100U, 0x500U, 0x600U, 0x500U, 0x700U, 0x800U}) {
    ASSERT_TRUE(rebind(*graph, x, 0x200, 0x300));
  }
  const std::ptrdiff_t before = changes();
  for (const DevicePointer x : {0x500U, 0x100U, 0x120U}) {
    ASSERT_TRUE(rebind(*graph, x, 0x200, 0x300));
    EXPECT_EQ(launched(*graph)[0], x);
  }
  EXPECT_EQ(changes(), before);
  ASSERT_TRUE(rebind(*graph, 0x110, 0x200, 0x300));
  EXPECT_EQ(changes(), before + 2) << "its place was taken, and both kernels of the step change";
}

TEST_F(LaunchGraphTest, AFailedRebindLeavesTheArgumentsAndIsMadeGoodLater) {
  const auto graph = must(make());
  for (const DevicePointer x : {0x110U, 0x120U, 0x130U}) {
    ASSERT_TRUE(rebind(*graph, x, 0x200, 0x300));
  }
  driver_.failures["cuGraphExecKernelNodeSetParams"] = CUDA_ERROR_OUT_OF_MEMORY;
  ASSERT_TRUE(rebind(*graph, 0x120, 0x200, 0x300));
  EXPECT_FALSE(rebind(*graph, 0x900, 0x200, 0x300));
  EXPECT_EQ(launched(*graph), (Addresses{0x120, 0x200, 0x300}));
  driver_.failures.clear();
  // The set whose place was to be taken is not trusted any more, and all of that place is changed.
  const std::ptrdiff_t before = changes();
  ASSERT_TRUE(rebind(*graph, 0x130, 0x200, 0x300));
  EXPECT_EQ(changes(), before + 2);
  ASSERT_TRUE(rebind(*graph, 0xa00, 0x200, 0x300));
  EXPECT_EQ(changes(), before + 2 + 3);
  EXPECT_EQ(launched(*graph), (Addresses{0xa00, 0x200, 0x300}));
}

TEST_F(LaunchGraphTest, EnqueuesTheSameWorkForACapture) {
  const auto graph = must(make());
  ASSERT_TRUE(rebind(*graph, 0x110, 0x210, 0x310));
  driver_.launches.clear();
  ASSERT_TRUE(graph->enqueue(nullptr));
  ASSERT_EQ(driver_.launches.size(), 3U);
  EXPECT_FALSE(driver_.launches[0].in_graph);
  EXPECT_EQ(driver_.launches[0].value(0), 0x110U);
  EXPECT_EQ(driver_.launches[1].value(1), kWorkspace);
  EXPECT_EQ(driver_.launches[2].value(0), 0x310U);
}

TEST_F(LaunchGraphTest, ArgumentsOfEarlyLaunchesComeWithProgrammaticEdges) {
  ExecutionPlan plan;
  plan.tensors = {tensor("x", TensorRole::inout, DType::fp32, {32})};
  const auto launched_as = [](const char* kernel, int early) {
    return launch(kernel, {1, 1, 1}, {32, 1, 1},
                  {refer(ArgumentKind::tensor, 0), number(ArgumentKind::early, early)});
  };
  plan.launches = {launched_as("four", 7), launched_as("five", 8)};
  plan.launches[0].waits = true;
  plan.launches[0].programmatic = true;  // of the first launch the step decides
  plan.launches[1].programmatic = true;
  const auto program = load(plan);
  LaunchArguments x;
  x.tensors = {0x100};
  // Nothing is ahead of the first step in the graph, whatever it could do.
  const auto graph = must(LaunchGraph::make(driver_.api(), {{&program->program(), x, true},
                                                            {&program->program(), x, true},
                                                            {&program->program(), x, false}}));
  const std::vector<std::uint64_t> expected{0, 8, 7, 8, 0, 8};
  const auto early = [&] {
    EXPECT_TRUE(graph->launch(nullptr));
    std::vector<std::uint64_t> values;
    for (const FakeDriver::Launch& node : driver_.executables[driver_.graph_launches.back()]) {
      EXPECT_EQ(node.programmatic_after != nullptr, node.value(1) != 0);
      values.push_back(node.value(1));
    }
    return values;
  };
  EXPECT_EQ(early(), expected);
  const std::array<DevicePointer, 1> other{0x200};
  const std::array<ArgumentView, 3> views{ArgumentView(other, {}, 0), ArgumentView(other, {}, 0),
                                          ArgumentView(other, {}, 0)};
  ASSERT_TRUE(graph->rebind(views));
  EXPECT_EQ(early(), expected) << "after a change of the nodes";
  EXPECT_EQ(launched(*graph), Addresses(6, 0x200));
}

TEST_F(LaunchGraphTest, NeedsACurrentContextAndGivesEverythingBack) {
  const auto alive = driver_.alive;
  driver_.current = nullptr;
  EXPECT_THAT(make(),
              Fails(ErrorCode::invalid_argument,
                    "no CUDA context is current in the calling thread; call cuCtxSetCurrent or "
                    "cudaSetDevice in it first"));

  driver_.current = reinterpret_cast<CUcontext>(0xcc);
  ASSERT_TRUE(make());
  for (const char* call : {"cuGraphAddKernelNode", "cuGraphInstantiate", "cuGraphUpload",
                           "cuStreamCreate", "cuStreamSynchronize"}) {
    driver_.failures = {{call, CUDA_ERROR_OUT_OF_MEMORY}};
    EXPECT_THAT(make(), Fails(std::string(call) + ": CUDA_ERROR_OUT_OF_MEMORY (out of memory)"))
        << call;
  }
  EXPECT_EQ(driver_.alive, alive);
  EXPECT_EQ(driver_.destroyed_twice, 0);
}

}  // namespace
}  // namespace kernwright
