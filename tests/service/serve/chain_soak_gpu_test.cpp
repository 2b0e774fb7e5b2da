// Chains of real kernels compute the same bits again and again, on every path, while other work
// takes multiprocessors at random, while other chains run, and from many threads. Inputs change
// from step to step, so that a value that is read too early is the result of another input.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/launch/context_gpu_test.h"
#include "tests/temp_dir.h"
#include <kernwright/chain.h>
#include <kernwright/service.h>

namespace kernwright {
namespace {

constexpr int kColumns = 1024;
constexpr int kLayers = 4;
constexpr std::size_t kInputs = 3;

constexpr const char* kSoakKernels = R"(
extern "C" __global__ void differences(const int* result, const int* expected, int* count, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    if (result[i] != expected[i]) atomicAdd(count, 1);
  }
}
extern "C" __global__ void occupy(int ns) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - begin < ns);
}
)";

/// Ends the process if something does not end by itself: a hang of the GPU cannot be waited for.
class Watchdog {
 public:
  explicit Watchdog(std::chrono::seconds limit) {
    thread_ = std::thread([this, limit] {
      std::unique_lock lock(mutex_);
      if (ended_.wait_for(lock, limit, [this] { return done_; })) return;
      std::fputs("[  FAILED  ] the GPU did not finish in time\n", stderr);
      std::_Exit(1);
    });
  }
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    ended_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::thread thread_;
};

class ChainSoakGpuTest : public ContextGpuTest {
 protected:
  /// A chain with its result, and how many words of it were ever wrong.
  struct Instance {
    Chain chain;
    DevicePointer result;
    DevicePointer wrong;
  };
  using Kernels = std::vector<Kernel>;

  void SetUp() override {
    ContextGpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    Result<Service> service = Service::open({.cache = cache_.path().native()});
    ASSERT_TRUE(service) << service.error().message;
    service_.emplace(*std::move(service));
    const auto norm =
        Problem::make("rmsnorm", {{"rows", 1}, {"columns", kColumns}}, {{"dtype", "bf16"}});
    const Problem up = matmul({.m = 1, .n = kColumns, .k = kColumns}, DType::bf16);
    norm_ = kernels(norm);
    up_ = kernels(up);
    down_ = kernels(up.with("residual", "add"));
    for (std::size_t i = 0; i < kInputs; ++i) inputs_.push_back(random(1, 1));
    for (int i = 0; i < kLayers; ++i) {
      norm_weights_.push_back(random(1, 1));
      up_weights_.push_back(random(kColumns, 0.03));
      down_weights_.push_back(random(kColumns, 0.03));
    }
    differences_ = kernel_of(differences_plan(), kSoakKernels);
  }

  Kernels kernels(const Problem& problem) {
    const Result<Kernels> found = service_->get_best_kernels(problem, 3);
    EXPECT_TRUE(found) << found.error().message;
    return found ? *found : Kernels{};
  }

  /// A matrix of bf16 with that deviation.
  DevicePointer random(int rows, double deviation) {
    std::normal_distribution<float> normal(0, static_cast<float>(deviation));
    std::vector<std::uint16_t> values(static_cast<std::size_t>(rows) * kColumns);
    for (std::uint16_t& value : values) {
      const float drawn = normal(random_);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &drawn, sizeof bits);
      value = static_cast<std::uint16_t>(bits >> 16);
    }
    const DevicePointer address = allocate(static_cast<std::int64_t>(values.size() * 2));
    upload(address, values);
    return address;
  }

  static ExecutionPlan differences_plan() {
    ExecutionPlan plan;
    plan.tensors = {tensor("result", TensorRole::in, DType::int32, {kColumns / 2}),
                    tensor("expected", TensorRole::in, DType::int32, {kColumns / 2}),
                    tensor("count", TensorRole::inout, DType::int32, {1})};
    plan.launches = {
        launch("differences", {1, 1, 1}, {128, 1, 1},
               {refer(ArgumentKind::tensor, 0), refer(ArgumentKind::tensor, 1),
                refer(ArgumentKind::tensor, 2), number(ArgumentKind::int32, kColumns / 2)})};
    return plan;
  }

  static void add(ChainBuilder& builder, const Kernel& kernel,
                  const std::map<std::string, ChainArg>& tensors) {
    std::vector<ChainArg> arguments;
    for (const ArgumentInfo& info : kernel.arguments()) {
      if (!info.is_scalar) arguments.push_back(tensors.at(info.name));
    }
    builder.add(kernel, arguments.data(), arguments.size());
  }

  static const Kernel& choose(const Kernels& kernels, std::size_t alternative) {
    return kernels[std::min(alternative, kernels.size() - 1)];
  }

  /// x + down(up(norm(x))), layer after layer.
  Instance make(std::size_t alternative = 0) {
    const Kernel& norm = choose(norm_, alternative);
    const Kernel& up = choose(up_, alternative);
    const Kernel& down = choose(down_, alternative);
    const auto fixed = [](DevicePointer address) {
      return ChainArg(reinterpret_cast<const void*>(address));
    };
    const DevicePointer result = allocate(kColumns * 2);
    const DevicePointer wrong = allocate(4);
    upload(wrong, std::vector<int>{0});
    ChainBuilder builder;
    const ChainSlot normal = builder.buffer(kColumns * 2);
    const ChainSlot wide = builder.buffer(kColumns * 2);
    ChainArg x = builder.parameter(reinterpret_cast<const void*>(inputs_[0]));
    const std::array<ChainSlot, 2> sums{builder.buffer(kColumns * 2), builder.buffer(kColumns * 2)};
    for (std::size_t i = 0; i < kLayers; ++i) {
      const ChainArg sum = i + 1 == kLayers ? fixed(result) : ChainArg(sums[i % 2]);
      add(builder, norm, {{"x", x}, {"w", fixed(norm_weights_[i])}, {"y", normal}});
      add(builder, up, {{"a", normal}, {"b", fixed(up_weights_[i])}, {"d", wide}});
      add(builder, down,
          {{"a", wide}, {"b", fixed(down_weights_[i])}, {"residual", x}, {"d", sum}});
      x = sum;
    }
    Result<Chain> chain = builder.build();
    EXPECT_TRUE(chain) << chain.error().message;
    return {*std::move(chain), result, wrong};
  }

  /// Returns the chain's results for each input, kernel by kernel on a stream.
  std::vector<DevicePointer> expected(Instance& instance) {
    std::vector<DevicePointer> results;
    std::vector<std::vector<int>> values;
    EXPECT_TRUE(instance.chain.set_path(ChainPath::stream));
    for (const DevicePointer input : inputs_) {
      EXPECT_TRUE(instance.chain.rebind({reinterpret_cast<const void*>(input)}));
      EXPECT_TRUE(instance.chain.launch(stream_.get()));
      wait(stream_.get());
      values.push_back(download<int>(instance.result, kColumns / 2));
      results.push_back(allocate(kColumns * 2));
      upload(results.back(), values.back());
    }
    EXPECT_NE(values[0], values[1]);
    EXPECT_NE(values[1], values[2]);
    return results;
  }

  /// Launches the chain with its inputs in turn, and checks every result. Called by any thread.
  void run(Instance& instance, ChainPath path, int steps, const std::vector<DevicePointer>& results,
           unsigned seed) {
    const ContextScope scope(*api_, context_);
    const StreamHandle stream = make_stream();
    std::mt19937 random(seed);
    ASSERT_TRUE(instance.chain.set_path(path));
    for (int i = 0; i < steps; ++i) {
      const std::size_t input = random() % kInputs;
      ASSERT_TRUE(instance.chain.rebind({reinterpret_cast<const void*>(inputs_[input])}));
      ASSERT_TRUE(instance.chain.launch(stream.get()));
      ASSERT_TRUE(differences_->handle().launch(stream.get(),
                                                {instance.result, results[input], instance.wrong}));
      // Streams run empty now and then, so that launches meet a GPU that is idle too.
      if (random() % 2'000 == 0) {
        wait(stream.get());
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
      }
    }
    wait(stream.get());
  }
  int wrong(const Instance& instance) { return download<int>(instance.wrong, 1)[0]; }

  /// Takes some multiprocessors for random times, again and again, until `done`.
  void make_noise(const std::atomic<bool>& done) {
    std::vector<std::shared_ptr<LoadedKernel>> occupying;
    for (const unsigned int blocks : {1U, 16U, 60U, 132U}) {
      ExecutionPlan plan;
      plan.scalars = {{.name = "ns", .dtype = DType::int32, .default_value = 0, .when = {}}};
      plan.launches = {
          launch("occupy", {blocks, 1, 1}, {512, 1, 1}, {refer(ArgumentKind::scalar, 0)})};
      occupying.push_back(kernel_of(plan, kSoakKernels));
    }
    const ContextScope scope(*api_, context_);
    const StreamHandle stream = make_stream();
    std::mt19937 random(7);
    while (!done) {
      for (int i = 0; i < 16; ++i) {
        const auto ns = static_cast<int>(random() % 50'000);
        ASSERT_TRUE(occupying[random() % occupying.size()]->handle().launch(stream.get(), {ns}));
      }
      wait(stream.get());
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    }
  }

  std::vector<ChainPath> paths_from_the_most_entangled(const Chain& chain) const {
    std::vector<ChainPath> paths = chain.paths();
    std::reverse(paths.begin(), paths.end());
    return paths;
  }

  const Watchdog watchdog_{std::chrono::seconds(180)};
  const ScopedTempDir cache_;
  std::optional<Service> service_;
  Kernels norm_, up_, down_;
  std::vector<DevicePointer> inputs_, norm_weights_, up_weights_, down_weights_;
  std::shared_ptr<LoadedKernel> differences_;
  std::mt19937 random_{static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed())};
};

TEST_F(ChainSoakGpuTest, ManyStepsBesideOtherWorkGiveTheBitsOfTheFirst) {
  std::atomic<bool> done = false;
  std::thread noise([&] { make_noise(done); });
  for (std::size_t alternative = 0; alternative < 3; ++alternative) {
    Instance instance = make(alternative);
    const std::vector<DevicePointer> results = expected(instance);
    for (const ChainPath path : paths_from_the_most_entangled(instance.chain)) {
      const bool most = path == ChainPath::programmatic_graph && alternative == 0;
      run(instance, path, most ? 60'000 : 4'000, results, 1);
      EXPECT_EQ(wrong(instance), 0) << to_string(path) << ", alternative " << alternative << ": "
                                    << instance.chain.summary(1).configuration;
    }
  }
  done = true;
  noise.join();
}

TEST_F(ChainSoakGpuTest, TwoChainsRunAtTheSameTime) {
  Instance one = make();
  Instance other = make();
  const std::vector<DevicePointer> results = expected(one);
  for (const ChainPath path : paths_from_the_most_entangled(one.chain)) {
    std::thread beside([&] { run(other, path, 5'000, results, 2); });
    run(one, path, 5'000, results, 1);
    beside.join();
    EXPECT_EQ(wrong(one), 0) << to_string(path);
    EXPECT_EQ(wrong(other), 0) << to_string(path);
  }
}

TEST_F(ChainSoakGpuTest, SixteenThreadsOnSixteenStreamsHaveAChainEach) {
  constexpr std::size_t kThreads = 16;
  std::vector<Instance> instances;
  for (std::size_t i = 0; i < kThreads; ++i) instances.push_back(make());
  const std::vector<DevicePointer> results = expected(instances.front());
  const std::vector<ChainPath> paths = paths_from_the_most_entangled(instances.front().chain);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      run(instances[i], paths[i % paths.size()], 2'000, results, static_cast<unsigned>(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < kThreads; ++i) EXPECT_EQ(wrong(instances[i]), 0) << i;
}

TEST_F(ChainSoakGpuTest, TuningAmongAlternativesEndsInTimeAndKeepsTheBitsOnEveryPath) {
  ChainBuilder builder;
  const ChainSlot x = builder.parameter(reinterpret_cast<const void*>(inputs_[0]));
  const DevicePointer result = allocate(kColumns * 2);
  const ChainSlot normal = builder.buffer(kColumns * 2);
  for (std::size_t i = 0; i < 20; ++i) {
    builder.add(norm_, {x, reinterpret_cast<const void*>(norm_weights_[i % kLayers]), normal});
    builder.add(up_, {normal, reinterpret_cast<const void*>(up_weights_[i % kLayers]),
                      reinterpret_cast<const void*>(result)});
  }
  Result<Chain> chain = builder.build();
  ASSERT_TRUE(chain) << chain.error().message;
  const auto begin = std::chrono::steady_clock::now();
  const auto times = chain->tune(stream_.get());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(times) << times.error().message;
  EXPECT_LT(took.count(), 12);
  RecordProperty("tune_ms", static_cast<int>(took.count() * 1'000));
  std::vector<int> first;
  for (const ChainPath path : chain->paths()) {
    ASSERT_TRUE(chain->set_path(path));
    ASSERT_TRUE(chain->launch(stream_.get()));
    wait(stream_.get());
    const std::vector<int> values = download<int>(result, kColumns / 2);
    if (first.empty()) first = values;
    EXPECT_EQ(values, first) << to_string(path);
  }
}

}  // namespace
}  // namespace kernwright
