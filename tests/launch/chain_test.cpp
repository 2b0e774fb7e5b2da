#include <algorithm>
#include <bit>
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "scripted_kernel.h"
#include "tests/doubles/fake_driver.h"
#include "tests/results.h"
#include <kernwright/baked_launch.h>
#include <kernwright/chain.h>

namespace kernwright {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kEarly = 77;

/// Returns a kernel that reads x and writes y, with a workspace; it gets kEarly if it starts early.
ExecutionPlan plan_of(const std::string& kernel, bool waits) {
  ExecutionPlan plan;
  plan.tensors = {tensor("x", TensorRole::in, DType::fp32, {64}),
                  tensor("y", TensorRole::out, DType::fp32, {64})};
  plan.scalars = {{.name = "alpha", .dtype = DType::fp64, .default_value = 1, .when = {}}};
  plan.workspaces = {{.name = "partials", .bytes = 100, .zeroed = false}};
  plan.launches = {launch(kernel, {1, 1, 1}, {32, 1, 1},
                          {refer(ArgumentKind::tensor, 0), refer(ArgumentKind::tensor, 1),
                           refer(ArgumentKind::workspace, 0), refer(ArgumentKind::scalar, 0),
                           number(ArgumentKind::early, kEarly)})};
  plan.launches[0].waits = waits;
  return plan;
}

class ChainTest : public ::testing::Test {
 protected:
  ChainTest() {
    driver_.current = reinterpret_cast<CUcontext>(0xcc);
    plain_ = load("plain", false);
    waiting_ = load("waiting", true);
  }

  std::shared_ptr<LoadedKernel> load(const std::string& name, bool waits) {
    const ExecutionPlan plan = plan_of(name, waits);
    driver_.kernels[name] = parameter_sizes(plan, plan.launches[0]);
    auto launcher = must(load_launcher(driver_.api(), FakeDriver::cubin(), plan, 0));
    return make_kernel(plan, std::move(launcher));
  }

  /// in -> plain -> buffer -> waiting -> buffer + 256 -> plain -> out
  Result<Chain> build() {
    ChainBuilder builder;
    const ChainSlot in = builder.parameter(pointer(0x1000));
    const ChainSlot out = builder.parameter(pointer(0x2000));
    const ChainSlot between = builder.buffer(512);
    builder.add(plain_->handle(), {in, between, 2.0});
    builder.add(waiting_->handle(), {between, between.at(256)});
    builder.add(plain_->handle(), {between.at(256), out});
    return builder.build();
  }

  static const void* pointer(std::uint64_t address) {
    return reinterpret_cast<const void*>(address);
  }
  /// The nodes of the graph that a launch starts.
  std::vector<FakeDriver::Launch> launched(Chain& chain) {
    const Result<void> done = chain.launch(nullptr);
    EXPECT_TRUE(done) << done.error().message;
    return driver_.executables[driver_.graph_launches.back()];
  }
  template <typename T>
  static std::string message(const Result<T>& result) {
    EXPECT_FALSE(result);
    return result ? std::string() : result.error().message;
  }

  FakeDriver driver_;
  std::shared_ptr<LoadedKernel> plain_;
  std::shared_ptr<LoadedKernel> waiting_;
};

TEST_F(ChainTest, WiresParametersBuffersWorkspacesAndScalars) {
  Chain chain = must(build());
  EXPECT_EQ(chain.kernels(), 3U);
  EXPECT_EQ(chain.memory_bytes(), 512 + 2 * 256) << "one workspace per kernel, not per step";
  driver_.calls.clear();
  const auto nodes = launched(chain);
  EXPECT_EQ(driver_.calls, std::vector<std::string>{"cuGraphLaunch"});
  ASSERT_EQ(nodes.size(), 3U);
  const std::uint64_t buffer = nodes[0].value(1);
  EXPECT_EQ(nodes[0].value(0), 0x1000U);
  EXPECT_EQ(nodes[0].value(3), std::bit_cast<std::uint64_t>(2.0));
  EXPECT_EQ(nodes[1].value(0), buffer);
  EXPECT_EQ(nodes[1].value(1), buffer + 256);
  EXPECT_EQ(nodes[1].value(3), std::bit_cast<std::uint64_t>(1.0));
  EXPECT_EQ(nodes[2].value(0), buffer + 256);
  EXPECT_EQ(nodes[2].value(1), 0x2000U);
  EXPECT_EQ(nodes[0].value(2), nodes[2].value(2));
  EXPECT_NE(nodes[0].value(2), nodes[1].value(2));
  EXPECT_EQ(nodes[1].after, std::vector<CUgraphNode>{nodes[0].node});
}

TEST_F(ChainTest, OnlyKernelsThatWaitAreLaunchedBeforeTheirPredecessorEnds) {
  Chain chain = must(build());
  EXPECT_EQ(chain.paths(),
            (std::vector{ChainPath::stream, ChainPath::graph, ChainPath::programmatic_stream,
                         ChainPath::programmatic_graph}));
  ASSERT_TRUE(chain.set_path(ChainPath::programmatic_graph));
  const auto nodes = launched(chain);
  EXPECT_EQ(nodes[1].programmatic_after, nodes[0].node);
  EXPECT_EQ(nodes[1].after, std::vector<CUgraphNode>{});
  EXPECT_EQ(nodes[2].programmatic_after, nullptr);
  EXPECT_EQ(nodes[2].after, std::vector<CUgraphNode>{nodes[1].node});

  ASSERT_TRUE(chain.set_path(ChainPath::programmatic_stream));
  driver_.launches.clear();
  ASSERT_TRUE(chain.launch(nullptr));
  ASSERT_EQ(driver_.launches.size(), 3U);
  const auto programmatic = [&](std::size_t i) {
    return driver_.launches[i].attributes.count(
               CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) != 0;
  };
  EXPECT_FALSE(programmatic(0));
  EXPECT_TRUE(programmatic(1));
  EXPECT_FALSE(programmatic(2));

  ChainBuilder builder;
  builder.add(waiting_->handle(), {pointer(0x1000), pointer(0x2000)});
  builder.add(plain_->handle(), {pointer(0x2000), pointer(0x1000)});
  Chain none = must(builder.build());
  EXPECT_EQ(none.paths(), (std::vector{ChainPath::stream, ChainPath::graph}))
      << "the first has no predecessor in the chain";
  EXPECT_THAT(message(none.set_path(ChainPath::programmatic_graph)),
              HasSubstr("chain of 2 kernels: no kernel of it"));
}

TEST_F(ChainTest, OnlyEarlyLaunchesGetWhatIsMeantForThem) {
  Chain chain = must(build());
  for (const DevicePointer in : {0x1000U, 0x5000U}) {
    ASSERT_TRUE(chain.rebind({pointer(in), pointer(0x2000)}));
    for (const ChainPath path : chain.paths()) {
      ASSERT_TRUE(chain.set_path(path));
      driver_.launches.clear();
      ASSERT_TRUE(chain.launch(nullptr));
      const auto nodes = driver_.launches.empty()
                             ? driver_.executables[driver_.graph_launches.back()]
                             : driver_.launches;
      const bool programmatic =
          path == ChainPath::programmatic_stream || path == ChainPath::programmatic_graph;
      EXPECT_EQ(nodes[0].value(4), 0U) << to_string(path);
      EXPECT_EQ(nodes[1].value(4), programmatic ? kEarly : 0U) << to_string(path);
      EXPECT_EQ(nodes[2].value(4), 0U) << to_string(path) << ": it does not wait";
    }
  }
  BakedLaunch baked = must(waiting_->handle().bake({pointer(0x1000), pointer(0x2000)}));
  ASSERT_TRUE(baked.launch(nullptr));
  EXPECT_EQ(driver_.executables[driver_.graph_launches.back()][0].value(4), 0U);
}

TEST_F(ChainTest, WhatAKernelInFrontWritesIsNotReadAhead) {
  ExecutionPlan plan = plan_of("reading", true);
  plan.launches[0].ahead = {0};
  plan.launches[0].arguments.back().kind = ArgumentKind::ahead;
  driver_.kernels["reading"] = parameter_sizes(plan, plan.launches[0]);
  auto launcher = must(load_launcher(driver_.api(), FakeDriver::cubin(), plan, 0));
  const std::shared_ptr<LoadedKernel> reading = make_kernel(plan, std::move(launcher));
  constexpr std::int64_t kBytes = 256;

  ChainBuilder builder;
  const ChainSlot first = builder.parameter(pointer(0x10000));
  const ChainSlot weight = builder.parameter(pointer(0x20000));
  const ChainSlot last = builder.parameter(pointer(0x30000));
  const ChainSlot memory = builder.buffer(4 * kBytes);
  builder.add(waiting_->handle(), {first, memory.at(2 * kBytes)});
  builder.add(waiting_->handle(), {memory.at(2 * kBytes), memory});
  builder.add(reading->handle(), {weight, memory.at(kBytes)});     // a neighbour is written
  builder.add(reading->handle(), {memory.at(kBytes - 16), last});  // two steps wrote of it
  builder.add(reading->handle(), {memory.at(3 * kBytes), last});   // nobody wrote it
  builder.add(reading->handle(), {last, last});                    // written in front of it
  Chain chain = must(builder.build());

  /// Which of the last four kernels read ahead, on every programmatic path.
  const auto ahead = [&](const std::vector<const void*>& parameters) {
    std::vector<bool> told;
    for (const ChainPath path : {ChainPath::programmatic_graph, ChainPath::programmatic_stream}) {
      EXPECT_TRUE(chain.set_path(path));
      EXPECT_TRUE(chain.rebind(parameters.data(), parameters.size()));
      driver_.launches.clear();
      EXPECT_TRUE(chain.launch(nullptr));
      const auto nodes = driver_.launches.empty()
                             ? driver_.executables[driver_.graph_launches.back()]
                             : driver_.launches;
      EXPECT_EQ(nodes[1].value(4), kEarly)
          << "it reads nothing ahead, and is told that it is early";
      std::vector<bool> now;
      for (std::size_t i = 2; i < nodes.size(); ++i) {
        EXPECT_TRUE(nodes[i].value(4) == kEarly || nodes[i].value(4) == 0);
        now.push_back(nodes[i].value(4) != 0);
      }
      if (path == ChainPath::programmatic_stream) {
        EXPECT_EQ(now, told);
      }
      told = now;
    }
    return told;
  };
  const void* const in = pointer(0x10000);
  const void* const out = pointer(0x30000);
  const std::vector<bool> apart{true, false, true, false};
  EXPECT_EQ(ahead({in, pointer(0x20000), out}), apart);

  // Addresses of the chain's own memory, as a caller cannot know them.
  ASSERT_TRUE(chain.set_path(ChainPath::graph));
  const std::uint64_t own = launched(chain)[1].value(1);
  EXPECT_EQ(launched(chain)[2].value(4), 0U) << "no step is early on this path";
  const auto at = [&](std::uint64_t offset) { return pointer(own + offset); };
  EXPECT_EQ(ahead({in, at(kBytes - 16), out}), (std::vector<bool>{false, false, true, false}));
  EXPECT_EQ(ahead({in, at(kBytes), out}), apart) << "its own output, at another time";
  EXPECT_EQ(ahead({in, at(3 * kBytes - 16), out}), (std::vector<bool>{false, false, true, false}));
  EXPECT_EQ(ahead({in, at(3 * kBytes), out}), apart);
  EXPECT_EQ(ahead({in, pointer(0x20000), at(3 * kBytes)}),
            (std::vector<bool>{true, false, false, false}));
  // Sets that come back, those that are ready and those that are made again.
  for (int round = 0; round < 3; ++round) {
    for (const std::uint64_t step : {0U, 16U, 64U, 128U, 240U}) {
      EXPECT_EQ(ahead({in, at(step), out})[0], false);
      EXPECT_EQ(ahead({in, at(step + 4 * kBytes), out})[0], true);
    }
  }
}

TEST_F(ChainTest, NothingIsReadAheadOutsideOfAChain) {
  ExecutionPlan plan = plan_of("reading", true);
  plan.launches[0].programmatic = true;
  plan.launches[0].ahead = {0};
  plan.launches[0].arguments.push_back(number(ArgumentKind::ahead, kEarly + 1));
  plan.launches.push_back(plan.launches[0]);
  driver_.kernels["reading"] = parameter_sizes(plan, plan.launches[0]);
  auto launcher = must(load_launcher(driver_.api(), FakeDriver::cubin(), plan, 0));
  const std::shared_ptr<LoadedKernel> reading = make_kernel(plan, std::move(launcher));
  ASSERT_TRUE(reading->handle().launch(nullptr, {pointer(0x1000), pointer(0x2000)}, &plan));
  ASSERT_EQ(driver_.launches.size(), 2U);
  for (const auto& one : driver_.launches) {
    EXPECT_EQ(one.value(4), kEarly) << "it starts early all the same";
    EXPECT_EQ(one.value(5), 0U);
  }
  BakedLaunch baked = must(reading->handle().bake({pointer(0x1000), pointer(0x2000)}));
  driver_.capture_status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  driver_.launches.clear();
  ASSERT_TRUE(baked.add_to_capture(nullptr));
  EXPECT_EQ(driver_.launches[0].value(5), 0U);
  driver_.capture_status = CU_STREAM_CAPTURE_STATUS_NONE;
  ASSERT_TRUE(baked.launch(nullptr));
  EXPECT_EQ(driver_.executables[driver_.graph_launches.back()][1].value(5), 0U)
      << "it follows a launch of its own kernel";

  ChainBuilder builder;
  builder.add(waiting_->handle(), {pointer(0x1000), pointer(0x2000)});
  builder.add(reading->handle(), {pointer(0x3000), pointer(0x2000)});
  Chain chain = must(builder.build());
  ASSERT_TRUE(chain.set_path(ChainPath::programmatic_graph));
  const auto nodes = launched(chain);
  ASSERT_EQ(nodes.size(), 3U);
  EXPECT_EQ(nodes[1].value(5), kEarly + 1);
  EXPECT_EQ(nodes[2].programmatic_after, nodes[1].node);
  EXPECT_EQ(nodes[2].value(5), 0U) << "it follows a launch of its own kernel";
}

TEST_F(ChainTest, RebindsWhatTheCallerGivesOnEveryPath) {
  Chain chain = must(build());
  const std::uint64_t buffer = launched(chain)[0].value(1);
  ASSERT_TRUE(chain.rebind({pointer(0x5000), pointer(0x6000)}));
  for (const ChainPath path : chain.paths()) {
    ASSERT_TRUE(chain.set_path(path));
    driver_.launches.clear();
    ASSERT_TRUE(chain.launch(nullptr));
    const auto nodes = driver_.launches.empty() ? driver_.executables[driver_.graph_launches.back()]
                                                : driver_.launches;
    EXPECT_EQ(nodes[0].value(0), 0x5000U) << to_string(path);
    EXPECT_EQ(nodes[0].value(1), buffer) << to_string(path);
    EXPECT_EQ(nodes[2].value(1), 0x6000U) << to_string(path);
  }
  EXPECT_EQ(message(chain.rebind({pointer(0x5000)})), "the chain has 2 parameters; 1 given");
  EXPECT_THAT(message(chain.rebind({pointer(0x5008), pointer(0x6000)})),
              HasSubstr("parameter 0 of the chain, kernel 0: argument 0"));
  EXPECT_THAT(message(chain.rebind({pointer(0x5000), nullptr})),
              HasSubstr("parameter 1 of the chain, kernel 2: null pointer"));
}

TEST_F(ChainTest, AFailedRebindKeepsTheAddressesThatWere) {
  Chain chain = must(build());
  driver_.failures["cuGraphExecKernelNodeSetParams"] = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_FALSE(chain.rebind({pointer(0x5000), pointer(0x6000)}));
  driver_.failures.clear();
  EXPECT_EQ(launched(chain)[0].value(0), 0x1000U);
  ASSERT_TRUE(chain.set_path(ChainPath::stream));
  driver_.launches.clear();
  ASSERT_TRUE(chain.launch(nullptr));
  EXPECT_EQ(driver_.launches[0].value(0), 0x1000U);
}

TEST_F(ChainTest, TuningTimesEveryPathAndStaysWithOne) {
  Chain chain = must(build());
  const std::vector<ChainTime> times = must(chain.tune(nullptr));
  ASSERT_EQ(times.size(), 4U);
  for (const ChainTime& time : times) {
    EXPECT_GT(time.host_us, 0);
    EXPECT_GT(time.period_us, 0);
  }
  EXPECT_THAT(chain.paths(), ::testing::Contains(chain.path()));
}

TEST_F(ChainTest, TuningKeepsTheAddressesThatWereGivenLast) {
  Chain chain = must(build());
  EXPECT_EQ(chain.early_kernels(), std::vector<std::size_t>{1});
  ASSERT_TRUE(chain.rebind({pointer(0x5000), pointer(0x6000)}));
  ASSERT_TRUE(chain.tune(nullptr));
  EXPECT_EQ(chain.early_kernels(), std::vector<std::size_t>{1})
      << "where none gains, the programmatic paths stay what they were";
  for (const ChainPath path : {ChainPath::graph, ChainPath::programmatic_graph}) {
    ASSERT_TRUE(chain.set_path(path));
    const auto nodes = launched(chain);
    EXPECT_EQ(nodes[0].value(0), 0x5000U) << to_string(path);
    EXPECT_EQ(nodes[2].value(1), 0x6000U) << to_string(path);
  }
  // Only the graphs of the two paths are left.
  EXPECT_EQ(driver_.alive.count("graph"), 2U);
}

TEST_F(ChainTest, TuningFailsWithTheDriversWords) {
  Chain chain = must(build());
  driver_.failures["cuGraphInstantiate"] = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_THAT(message(chain.tune(nullptr)), HasSubstr("chain of 3 kernels: cuGraphInstantiate"));
  driver_.failures.clear();
  EXPECT_EQ(launched(chain).size(), 3U);
}

/// A chain whose kernels have alternatives, on a driver whose launches take time.
class ChainOfAlternativesTest : public ChainTest {
 protected:
  ChainOfAlternativesTest() {
    for (const char* name : {"first", "second", "third"}) alternatives_.push_back(load(name, true));
    driver_.takes = [this](const FakeDriver::Launch& launch) {
      const auto found = takes_.find(launch.kernel);
      const int us = found == takes_.end() ? 20 : found->second;
      return std::chrono::microseconds(launch.programmatic_after ? us - gain_ : us);
    };
  }
  std::vector<Kernel> alternatives() const {
    std::vector<Kernel> kernels;
    for (const auto& kernel : alternatives_) kernels.push_back(kernel->handle());
    return kernels;
  }
  Result<Chain> build_with_alternatives() {
    ChainBuilder builder;
    const ChainSlot in = builder.parameter(pointer(0x1000));
    const ChainSlot out = builder.parameter(pointer(0x2000));
    builder.add(plain_->handle(), {in, out});
    builder.add(alternatives(), {out, in});
    builder.add(alternatives(), {in, out, 3.0});
    return builder.build();
  }
  std::vector<std::string> kernels(Chain& chain) {
    std::vector<std::string> names;
    for (const auto& node : launched(chain)) names.push_back(node.kernel);
    return names;
  }

  std::vector<std::shared_ptr<LoadedKernel>> alternatives_;
  std::map<std::string, int> takes_;  ///< us by kernel; 20 for others
  int gain_ = 0;                      ///< us, by an early start
};

TEST_F(ChainOfAlternativesTest, BeginsWithTheFirst) {
  Chain chain = must(build_with_alternatives());
  EXPECT_EQ(kernels(chain), (std::vector<std::string>{"plain", "first", "first"}));
  EXPECT_EQ(chain.memory_bytes(), 4 * 256) << "each has a workspace of its own";
  EXPECT_EQ(&chain.summary(1), &alternatives_[0]->summary());
}

TEST_F(ChainOfAlternativesTest, TuningTakesWhatIsFasterInTheChain) {
  takes_ = {{"first", 100}, {"second", 300}, {"third", 30}};
  gain_ = 10;
  Chain chain = must(build_with_alternatives());
  const std::uint64_t workspace = launched(chain)[1].value(2);
  ASSERT_TRUE(chain.rebind({pointer(0x5000), pointer(0x6000)}));
  must(chain.tune(nullptr));
  EXPECT_EQ(chain.early_kernels(), (std::vector<std::size_t>{1, 2}));
  EXPECT_EQ(&chain.summary(2), &alternatives_[2]->summary());
  for (const ChainPath path : {ChainPath::graph, ChainPath::programmatic_graph}) {
    ASSERT_TRUE(chain.set_path(path));
    EXPECT_EQ(kernels(chain), (std::vector<std::string>{"plain", "third", "third"}));
    const auto nodes = launched(chain);
    EXPECT_EQ(nodes[1].value(0), 0x6000U);
    EXPECT_EQ(nodes[2].value(0), 0x5000U);
    EXPECT_EQ(nodes[2].value(3), std::bit_cast<std::uint64_t>(3.0));
    EXPECT_EQ(nodes[1].value(2), nodes[2].value(2)) << "steps of one kernel share its workspace";
    EXPECT_NE(nodes[1].value(2), workspace);
    // Addresses that come later reach the kernels that were chosen, and leave their workspaces.
    ASSERT_TRUE(chain.rebind({pointer(0x7000), pointer(0x6000)}));
    const auto bound = launched(chain);
    EXPECT_EQ(bound[2].value(0), 0x7000U);
    EXPECT_EQ(bound[2].value(2), nodes[2].value(2));
    ASSERT_TRUE(chain.rebind({pointer(0x5000), pointer(0x6000)}));
  }
  EXPECT_EQ(driver_.alive.count("graph"), 2U) << "those of the two paths";
}

TEST_F(ChainOfAlternativesTest, TuningKeepsTheFirstWhereNoneIsFaster) {
  takes_ = {{"first", 100}, {"second", 140}, {"third", 120}};
  Chain chain = must(build_with_alternatives());
  ASSERT_TRUE(chain.tune(nullptr));
  EXPECT_EQ(kernels(chain), (std::vector<std::string>{"plain", "first", "first"}));
}

TEST_F(ChainOfAlternativesTest, AnErrorWhileTuningLeavesTheChainAsItWas) {
  takes_ = {{"first", 100}, {"second", 50}, {"third", 30}};
  Chain chain = must(build_with_alternatives());
  int launches = 0;
  driver_.takes = [&](const FakeDriver::Launch& launch) {
    if (launch.kernel == "third" && ++launches == 20) {
      driver_.failures["cuGraphLaunch"] = CUDA_ERROR_LAUNCH_FAILED;
    }
    return std::chrono::microseconds(takes_[launch.kernel]);
  };
  EXPECT_THAT(message(chain.tune(nullptr)), HasSubstr("chain of 3 kernels"));
  driver_.failures.clear();
  EXPECT_EQ(kernels(chain), (std::vector<std::string>{"plain", "first", "first"}));
  EXPECT_EQ(driver_.alive.count("graph"), 2U);
}

TEST_F(ChainOfAlternativesTest, ThoseOfOneStepAreForOneProblem) {
  KernelSummary summary;
  summary.problem = "scale rows=64";
  const ExecutionPlan plan = plan_of("other", true);
  driver_.kernels["other"] = parameter_sizes(plan, plan.launches[0]);
  auto launcher = must(load_launcher(driver_.api(), FakeDriver::cubin(), plan, 0));
  const auto other = std::make_shared<LoadedKernel>(
      std::move(summary), std::make_shared<const CompactPlan>(plan), std::move(launcher), Error{});
  ChainBuilder builder;
  builder.add({plain_->handle(), other->handle()}, {pointer(0x1000), pointer(0x2000)});
  EXPECT_EQ(message(builder.build()),
            "kernel 0 of the chain is for scale rows=32; scale rows=64 cannot take its place");
  ChainBuilder none;
  none.add(std::vector<Kernel>{}, {pointer(0x1000), pointer(0x2000)});
  EXPECT_EQ(message(none.build()), "step 0 of the chain has no kernel");
}

TEST_F(ChainTest, IsAddedToACaptureAsItsKernels) {
  Chain chain = must(build());
  EXPECT_EQ(message(chain.add_to_capture(nullptr)),
            "chain of 3 kernels: the stream is not being captured");
  driver_.capture_status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  driver_.launches.clear();
  ASSERT_TRUE(chain.add_to_capture(nullptr));
  EXPECT_EQ(driver_.launches.size(), 3U);
}

TEST_F(ChainTest, OutlivesItsKernelsAndGivesEverythingBack) {
  {
    Chain chain = must(build());
    plain_.reset();
    waiting_.reset();
    EXPECT_EQ(launched(chain).size(), 3U);
    Chain moved = std::move(chain);
    EXPECT_TRUE(moved.launch(nullptr));
  }
  EXPECT_EQ(driver_.alive, std::multiset<std::string>{});
  EXPECT_EQ(driver_.destroyed_twice, 0);
}

TEST_F(ChainTest, AMovedFromObjectSaysSo) {
  Chain chain = must(build());
  Chain other = std::move(chain);
  EXPECT_TRUE(other.launch(nullptr));
  for (const Result<void>& result :
       // NOLINTNEXTLINE(bugprone-use-after-move): what is tested
       {chain.launch(nullptr), chain.rebind({pointer(0x5000), pointer(0x6000)}),
        chain.add_to_capture(nullptr), chain.set_path(ChainPath::graph)}) {
    EXPECT_EQ(message(result), "the chain was moved to another object");
  }
  EXPECT_EQ(message(chain.tune(nullptr)), "the chain was moved to another object");
}

TEST_F(ChainTest, MemoryThatIsNotThereIsNamed) {
  driver_.failures["cuMemAlloc"] = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_THAT(message(build()), HasSubstr("chain of 3 kernels: 1024 bytes: cuMemAlloc"));
}

TEST_F(ChainTest, BuildingNamesWhatDoesNotFit) {
  EXPECT_EQ(message(ChainBuilder().build()), "the chain has no kernel");
  const auto refusal = [&](const ChainArg& x, const ChainArg& y) {
    ChainBuilder builder;
    builder.parameter(pointer(0x1000));
    builder.buffer(256);
    builder.add(plain_->handle(), {x, y});
    return message(builder.build());
  };
  const ChainSlot buffer{.is_buffer = true, .index = 0, .offset_bytes = 0};
  const ChainSlot parameter{.is_buffer = false, .index = 0, .offset_bytes = 0};
  EXPECT_THAT(refusal(parameter, buffer.at(16)),
              HasSubstr("argument 1 of kernel 0 (scale rows=32) needs 256 bytes from byte 16 of "
                        "buffer 0, which has 256"));
  EXPECT_THAT(refusal(ChainSlot{.is_buffer = false, .index = 1, .offset_bytes = 0}, buffer),
              HasSubstr("is parameter 1; the chain has 1"));
  EXPECT_THAT(refusal(parameter.at(8), buffer), HasSubstr("kernel 0 of the chain: argument 0"));
  EXPECT_THAT(refusal(1.0, buffer), HasSubstr("a device pointer expected"));

  ChainBuilder builder;
  const auto without_gpu = std::make_shared<LoadedKernel>(
      KernelSummary{}, std::make_shared<const CompactPlan>(plan_of("plain", false)), nullptr,
      Error{ErrorCode::unavailable, "no GPU"});
  builder.add(without_gpu->handle(), {pointer(0x1000), pointer(0x2000)});
  EXPECT_EQ(message(builder.build()), "no GPU");
}

}  // namespace
}  // namespace kernwright
