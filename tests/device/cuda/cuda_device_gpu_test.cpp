#include <chrono>
#include <cstdlib>
#include <numeric>

#include "tests/device/gpu_fixture.h"

namespace kernwright {
namespace {

ExecutionPlan add_one_plan() {
  ExecutionPlan plan;
  plan.tensors = {tensor("x", TensorRole::inout, DType::int32, {1})};
  plan.launches = {launch("add_one", {1, 1, 1}, {32, 1, 1},
                          {refer(ArgumentKind::tensor, 0), number(ArgumentKind::int32, 1)})};
  return plan;
}

using DeviceGpuTest = GpuTest;

TEST_F(DeviceGpuTest, DescribesTheGpu) {
  const DeviceProfile& profile = device_->profile();
  EXPECT_FALSE(profile.id.empty());
  EXPECT_FALSE(profile.name.empty());
  EXPECT_GE(profile.sm_arch, 70);
  EXPECT_GT(profile.sm_count, 0);
  EXPECT_GE(profile.smem_per_block_optin, 48 * 1024);
  EXPECT_GT(profile.l2_bytes, 0);
  EXPECT_GT(profile.memory_bytes, std::int64_t{1} << 30);
  EXPECT_EQ(device_->identity().uuid.size(), 40U);
  EXPECT_FALSE(device_->identity().driver_version.empty());
  const Result<CudaDeviceInfo> described = describe_cuda_device(0);
  ASSERT_TRUE(described);
  EXPECT_EQ(described->profile.id, profile.id);
}

TEST_F(DeviceGpuTest, MemoryKeepsWhatIsUploaded) {
  const DevicePointer memory = allocate(1 << 22);
  std::vector<std::uint32_t> values(1 << 20);
  std::iota(values.begin(), values.end(), 7U);
  upload(memory, values);
  EXPECT_EQ(download<std::uint32_t>(memory, values.size()), values);
  ASSERT_TRUE(device_->fill(memory + 4, 0x7b, 8));
  values[1] = values[2] = 0x7b7b7b7b;
  EXPECT_EQ(download<std::uint32_t>(memory, values.size()), values);
}

TEST_F(DeviceGpuTest, TooMuchMemoryIsOutOfMemoryAndDoesNoHarm) {
  EXPECT_FALSE(device_->allocate(std::int64_t{1} << 46));
  EXPECT_EQ(device_->last_failure(), Outcome::out_of_memory);
  EXPECT_FALSE(device_->lost());
  EXPECT_NE(allocate(1024), 0U);
}

TEST_F(DeviceGpuTest, EveryKindOfArgumentArrives) {
  ExecutionPlan plan;
  plan.tensors = {tensor("out", TensorRole::out, DType::fp64, {11})};
  for (const DType dtype : {DType::fp32, DType::fp64, DType::bf16, DType::fp16, DType::fp8_e4m3,
                            DType::int8, DType::int32}) {
    Scalar& scalar = plan.scalars.emplace_back();
    scalar.name = to_string(dtype);
    scalar.dtype = dtype;
  }
  plan.workspaces = {{.name = "other", .bytes = 40, .zeroed = false},
                     {.name = "zeros", .bytes = 256, .zeroed = true}};
  plan.launches = {launch("kinds", {1, 1, 1}, {1, 1, 1}, {refer(ArgumentKind::tensor, 0)})};
  auto& arguments = plan.launches[0].arguments;
  for (std::size_t i = 0; i < plan.scalars.size(); ++i) {
    arguments.push_back(refer(ArgumentKind::scalar, i));
  }
  arguments.push_back(number(ArgumentKind::int32, -77));
  arguments.push_back(number(ArgumentKind::int64, 1LL << 40));
  arguments.push_back(refer(ArgumentKind::workspace, 1));
  arguments.push_back(refer(ArgumentKind::tensor, ArgumentPlan::kAbsent));

  LaunchArguments given;
  given.tensors = {allocate(88)};
  given.scalars = {1.5, 1e-300, 1.5, -2, 0.5, -5, 1e6};
  given.workspace = allocate(plan.workspace_bytes());
  ASSERT_TRUE(run(plan, given));
  EXPECT_EQ(download<double>(given.tensors[0], 11),
            (std::vector<double>{1.5, 1e-300, 0x3fc0, 0xc000, 0x30, -5, 1e6, -77,
                                 static_cast<double>(1LL << 40), 1, 64}));
}

TEST_F(DeviceGpuTest, APlanOfTwoLaunchesRunsInOrderOverAZeroedWorkspace) {
  const ExecutionPlan plan = counting_plan("count_blocks", 1000);
  LaunchArguments arguments;
  arguments.tensors = {allocate(4)};
  arguments.workspace = allocate(256);
  const auto program = load(plan);
  ASSERT_TRUE(program);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(device_->run(*program, arguments));
    EXPECT_EQ(download<int>(arguments.tensors[0], 1)[0], 1000);
  }
}

TEST_F(DeviceGpuTest, SharedMemoryBeyond48KilobytesIsGranted) {
  const std::int64_t bytes = device_->profile().smem_per_block_optin;
  ExecutionPlan plan;
  plan.tensors = {tensor("out", TensorRole::out, DType::int32, {1})};
  plan.launches = {
      launch("fill_shared", {1, 1, 1}, {256, 1, 1},
             {refer(ArgumentKind::tensor, 0), number(ArgumentKind::int32, bytes / 4)})};
  plan.launches[0].dynamic_smem = static_cast<std::uint32_t>(bytes);
  LaunchArguments arguments;
  arguments.tensors = {allocate(4)};
  ASSERT_TRUE(run(plan, arguments));
  const std::int64_t words = bytes / 4;
  EXPECT_EQ(download<int>(arguments.tensors[0], 1)[0], words * (words - 1) / 2 % 1000003);

  const auto program = load(plan);
  ASSERT_TRUE(program);
  const auto units = device_->prepare_timing(*program, {&arguments, 1}, 2);
  ASSERT_TRUE(units) << units.error().message;
  EXPECT_TRUE(device_->sample(**units));

  plan.launches[0].dynamic_smem += 1024;
  EXPECT_FALSE(device_->load(compile(kGpuKernels), plan));
  EXPECT_EQ(device_->last_failure(), Outcome::launch_failed);
  EXPECT_FALSE(device_->lost());
}

TEST_F(DeviceGpuTest, ACooperativeGridIsResidentAtOnce) {
  const std::int64_t count = device_->profile().sm_count;
  const auto blocks = static_cast<std::uint32_t>(count);
  ExecutionPlan plan;
  plan.tensors = {tensor("out", TensorRole::out, DType::int32, {blocks})};
  plan.workspaces = {{.name = "counter", .bytes = 4, .zeroed = true}};
  plan.launches = {launch("grid_barrier", {blocks, 1, 1}, {64, 1, 1},
                          {refer(ArgumentKind::workspace, 0), refer(ArgumentKind::tensor, 0)})};
  plan.launches[0].cooperative = true;
  LaunchArguments arguments;
  arguments.tensors = {allocate(count * 4)};
  arguments.workspace = allocate(256);
  ASSERT_TRUE(run(plan, arguments));
  EXPECT_EQ(download<int>(arguments.tensors[0], blocks),
            std::vector<int>(blocks, static_cast<int>(blocks)));

  // The same in a graph.
  const auto program = load(plan);
  const auto units = device_->prepare_timing(*program, {&arguments, 1}, 3);
  ASSERT_TRUE(units) << units.error().message;
  EXPECT_TRUE(device_->sample(**units));

  // More blocks than fit are refused instead of hanging.
  plan.launches[0].grid = {blocks * 64, 1, 1};
  const auto too_large = load(plan);
  ASSERT_TRUE(too_large);
  arguments.tensors = {allocate(count * 64 * 4)};
  EXPECT_FALSE(device_->run(*too_large, arguments));
  EXPECT_EQ(device_->last_failure(), Outcome::launch_failed);
  EXPECT_FALSE(device_->lost());
}

TEST_F(DeviceGpuTest, ProgrammaticLaunchesSeeWhatTheirPredecessorWrote) {
  if (!hopper()) GTEST_SKIP() << "needs sm_90, this is sm_" << device_->profile().sm_arch;
  ExecutionPlan plan = counting_plan("late_count", 100);
  plan.launches[1].programmatic = true;
  LaunchArguments arguments;
  arguments.tensors = {allocate(4)};
  arguments.workspace = allocate(256);
  const auto program = load(plan);
  ASSERT_TRUE(program);
  ASSERT_TRUE(device_->run(*program, arguments));
  EXPECT_EQ(download<int>(arguments.tensors[0], 1)[0], 100);

  ASSERT_TRUE(device_->fill(arguments.tensors[0], 0, 4));
  const auto units = device_->prepare_timing(*program, {&arguments, 1}, 8);
  ASSERT_TRUE(units) << units.error().message;
  ASSERT_TRUE(device_->sample(**units));
  EXPECT_EQ(download<int>(arguments.tensors[0], 1)[0], 100);
}

TEST_F(DeviceGpuTest, ClustersOfPortableAndLargerSize) {
  if (!hopper()) GTEST_SKIP() << "needs sm_90, this is sm_" << device_->profile().sm_arch;
  for (const std::uint32_t size : {2U, 8U, 16U}) {
    ExecutionPlan plan;
    plan.tensors = {tensor("out", TensorRole::out, DType::int32, {32})};
    plan.launches = {
        launch("cluster_rank", {32, 1, 1}, {32, 1, 1}, {refer(ArgumentKind::tensor, 0)})};
    plan.launches[0].cluster = {size, 1, 1};
    LaunchArguments arguments;
    arguments.tensors = {allocate(128)};
    const auto program = load(plan, kHopperKernels);
    ASSERT_TRUE(program);
    std::vector<int> expected(32);
    for (std::uint32_t i = 0; i < 32; ++i) {
      expected[i] = static_cast<int>(i % size * 100 + size);
    }
    const Result<void> ran = device_->run(*program, arguments);
    ASSERT_TRUE(ran) << ran.error().message;
    EXPECT_EQ(download<int>(arguments.tensors[0], 32), expected);

    ASSERT_TRUE(device_->fill(arguments.tensors[0], 0, 128));
    const auto units = device_->prepare_timing(*program, {&arguments, 1}, 2);
    ASSERT_TRUE(units) << units.error().message;
    ASSERT_TRUE(device_->sample(**units));
    EXPECT_EQ(download<int>(arguments.tensors[0], 32), expected);
  }
}

TEST_F(DeviceGpuTest, ATensorMapBringsASwizzledBoxAndZerosBeyondTheEdge) {
  if (!hopper()) GTEST_SKIP() << "needs sm_90, this is sm_" << device_->profile().sm_arch;
  constexpr std::size_t kRows = 28;
  constexpr std::size_t kColumns = 128;
  std::vector<std::uint16_t> matrix(kRows * kColumns);
  std::iota(matrix.begin(), matrix.end(), std::uint16_t{1});

  ExecutionPlan plan;
  plan.tensors = {tensor("a", TensorRole::in, DType::bf16, {kRows, kColumns}),
                  tensor("out", TensorRole::out, DType::bf16, {8, 64})};
  plan.tensor_maps = {{.name = "map",
                       .tensor = 0,
                       .dtype = DType::bf16,
                       .dims = {kColumns, kRows},
                       .strides_bytes = {kColumns * 2},
                       .box = {64, 8},
                       .swizzle = 128,
                       .l2_promotion = 128}};
  plan.launches = {launch("copy_box", {1, 1, 1}, {128, 1, 1},
                          {refer(ArgumentKind::tensor_map, 0), refer(ArgumentKind::tensor, 1),
                           number(ArgumentKind::int32, 24), number(ArgumentKind::int32, 64)})};
  LaunchArguments arguments;
  arguments.tensors = {allocate(kRows * kColumns * 2), allocate(1024)};
  upload(arguments.tensors[0], matrix);
  ASSERT_TRUE(run(plan, arguments, kHopperKernels));

  const auto tile = download<std::uint16_t>(arguments.tensors[1], 512);
  for (std::size_t row = 0; row < 8; ++row) {
    for (std::size_t column = 0; column < 64; ++column) {
      // 16-byte chunks of a 128-byte row are permuted by the row's low three bits.
      const std::size_t chunk = (column / 8) ^ row;
      const std::size_t source_row = 24 + row;
      const int expected = source_row < kRows ? matrix[source_row * kColumns + 64 + column] : 0;
      ASSERT_EQ(tile[row * 64 + chunk * 8 + column % 8], expected)
          << "row " << row << " column " << column;
    }
  }
}

TEST_F(DeviceGpuTest, AKernelOfKnownDurationIsTimedWithinAFewPercent) {
  for (const int us : {20, 200, 2000}) {
    ExecutionPlan plan;
    plan.launches = {launch("spin_us", {1, 1, 1}, {1, 1, 1}, {number(ArgumentKind::int64, us)})};
    const auto program = load(plan);
    ASSERT_TRUE(program);
    const LaunchArguments arguments;
    const int count = us < 100 ? 256 : 10;
    const auto units = device_->prepare_timing(*program, {&arguments, 1}, count);
    ASSERT_TRUE(units) << units.error().message;
    ASSERT_TRUE(device_->sample(**units));
    const Result<Sample> sample = device_->sample(**units);
    ASSERT_TRUE(sample) << sample.error().message;
    // The timer ticks in steps of up to 1.024 us, and nodes are about as far apart.
    EXPECT_GE(sample->us, us * 0.98 - 1.1);
    EXPECT_LE(sample->us, us * 1.02 + 3);
    RecordProperty(concat("spin_", us, "_us"), concat(sample->us));
  }
}

TEST_F(DeviceGpuTest, TimedUnitsRotateThroughTheirArgumentSets) {
  const auto program = load(add_one_plan());
  ASSERT_TRUE(program);
  std::vector<LaunchArguments> sets(3);
  for (LaunchArguments& set : sets) {
    set.tensors = {allocate(16)};
    ASSERT_TRUE(device_->fill(set.tensors[0], 0, 16));
  }
  const auto units = device_->prepare_timing(*program, sets, 7);
  ASSERT_TRUE(units);
  ASSERT_TRUE(device_->sample(**units));
  ASSERT_TRUE(device_->sample(**units));
  EXPECT_EQ(download<int>(sets[0].tensors[0], 1)[0], 6);
  EXPECT_EQ(download<int>(sets[1].tensors[0], 1)[0], 4);
  EXPECT_EQ(download<int>(sets[2].tensors[0], 1)[0], 4);
}

TEST_F(DeviceGpuTest, SamplesCarryAPlausibleClockAndTheTimersAgree) {
  ExecutionPlan plan;
  plan.launches = {launch("spin_us", {1, 1, 1}, {1, 1, 1}, {number(ArgumentKind::int64, 1500)})};
  const auto program = load(plan);
  ASSERT_TRUE(program);
  const LaunchArguments arguments;
  const auto units = device_->prepare_timing(*program, {&arguments, 1}, 1);
  ASSERT_TRUE(units) << units.error().message;
  for (int i = 0; i < 10; ++i) {
    const Result<Sample> sample = device_->sample(**units);
    ASSERT_TRUE(sample) << sample.error().message;
    EXPECT_GT(sample->sm_mhz, 200);
    EXPECT_LT(sample->sm_mhz, 4000);
    RecordProperty(concat("sm_mhz_", i), concat(sample->sm_mhz));
  }
  const TimerCheck check = device_->take_timer_check();
  EXPECT_EQ(check.samples, 10);
  EXPECT_EQ(check.disagreed, 0) << check.event_us << " us against " << check.timer_us;
}

TEST_F(DeviceGpuTest, SeveralReplaysAreOneSample) {
  const auto program = load(add_one_plan());
  LaunchArguments arguments;
  arguments.tensors = {allocate(4)};
  ASSERT_TRUE(device_->fill(arguments.tensors[0], 0, 4));
  const auto units = device_->prepare_timing(*program, {&arguments, 1}, 256);
  ASSERT_TRUE(units) << units.error().message;
  (*units)->replays = 4;
  const Result<Sample> sample = device_->sample(**units);
  ASSERT_TRUE(sample);
  EXPECT_LT(sample->us, 20);
  EXPECT_EQ(download<int>(arguments.tensors[0], 1)[0], 1024);
}

TEST_F(DeviceGpuTest, EveryLaunchPathIsTimedOnAllSetsAlike) {
  const auto program = load(add_one_plan());
  ASSERT_TRUE(program);
  std::vector<LaunchArguments> sets(2);
  for (LaunchArguments& set : sets) {
    set.tensors = {allocate(16)};
    ASSERT_TRUE(device_->fill(set.tensors[0], 0, 16));
  }
  const Result<LaunchTimes> paths = device_->time_launch_paths(*program, sets, 0.05);
  ASSERT_TRUE(paths) << paths.error().message;
  ASSERT_EQ(paths->times.size(), 3U);
  ASSERT_TRUE(paths->best);
  for (const PathTime& time : paths->times) {
    EXPECT_GT(time.host_us, 0.2) << to_string(time.path);
    EXPECT_LT(time.host_us, 100) << to_string(time.path);
    EXPECT_GT(time.period_us, 0.2) << to_string(time.path);
    EXPECT_LT(time.period_us, 100) << to_string(time.path);
  }
  const int first = download<int>(sets[0].tensors[0], 1)[0];
  EXPECT_GT(first, 500);
  EXPECT_NEAR(download<int>(sets[1].tensors[0], 1)[0], first, 3) << "once per path";
}

TEST_F(DeviceGpuTest, LaunchPathsOfALongKernelTieAndTakeAboutTheTimeGiven) {
  ExecutionPlan plan;
  plan.launches = {launch("spin_us", {1, 1, 1}, {1, 1, 1}, {number(ArgumentKind::int64, 2000)})};
  const auto program = load(plan);
  ASSERT_TRUE(program);
  const LaunchArguments arguments;
  const auto begin = std::chrono::steady_clock::now();
  const Result<LaunchTimes> paths = device_->time_launch_paths(*program, {&arguments, 1}, 0.1);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(paths) << paths.error().message;
  EXPECT_LT(seconds.count(), 0.3);
  for (const PathTime& time : paths->times) {
    EXPECT_GE(time.period_us, 1950) << to_string(time.path);
    EXPECT_LE(time.period_us, 2100) << to_string(time.path);
    EXPECT_LT(time.host_us, 100) << to_string(time.path) << ": the queue does not fill";
  }
}

TEST_F(DeviceGpuTest, WorkBesideRunsAtTheSameTime) {
  ExecutionPlan plan;
  plan.launches = {launch("spin_us", {1, 1, 1}, {1, 1, 1}, {number(ArgumentKind::int64, 20'000)})};
  const auto program = load(plan);
  ASSERT_TRUE(device_->run(*program, {}));
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(device_->enqueue_beside(*program, {}));
  ASSERT_TRUE(device_->enqueue(*program, {}));
  ASSERT_TRUE(device_->wait());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took.count(), 0.0199);
  EXPECT_LT(took.count(), 0.035);
}

TEST_F(DeviceGpuTest, FencedMemoryIsUsableToItsLastByte) {
  const auto buffer = device_->allocate_fenced(1000);
  ASSERT_TRUE(buffer) << buffer.error().message;
  const std::int64_t bytes = (*buffer)->bytes();
  EXPECT_GE(bytes, 1000);
  ExecutionPlan plan;
  plan.launches = {launch(
      "store_at", {1, 1, 1}, {1, 1, 1},
      {number(ArgumentKind::int64, static_cast<std::int64_t>((*buffer)->address()) + bytes - 4)})};
  ASSERT_TRUE(run(plan, {}));
  EXPECT_EQ(download<int>((*buffer)->address() + static_cast<DevicePointer>(bytes - 4), 1)[0], 1);
}

/// Candidates that ruin the context, each in a process of its own.
class PoisonGpuTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  }

  /// In the child: what became of the plan. Ends the process without destructors, as a worker does:
  /// the driver's own would wait for the kernel.
  [[noreturn]] void end_with(const ExecutionPlan& plan, const LaunchArguments& arguments) {
    const auto program = load(plan);
    const Result<void> ran = device_->run(*program, arguments);
    const bool failed = !ran && device_->lost() && !device_->allocate(16) &&
                        device_->last_failure() == Outcome::device_lost;
    std::fprintf(stderr, "%s", ran ? "no failure" : ran.error().message.c_str());
    std::_Exit(failed ? 0 : 1);
  }
};

TEST_F(PoisonGpuTest, AnIllegalAddressIsToldAndLosesTheDevice) {
  ExecutionPlan plan;
  plan.tensors = {tensor("x", TensorRole::out, DType::int32, {1})};
  plan.launches = {launch("store_at", {1, 1, 1}, {1, 1, 1}, {refer(ArgumentKind::tensor, 0)})};
  LaunchArguments arguments;
  arguments.tensors = {0x10};
  EXPECT_EXIT(end_with(plan, arguments), ::testing::ExitedWithCode(0), "ILLEGAL_ADDRESS");
}

TEST_F(PoisonGpuTest, TheByteBesideFencedMemoryIsUnmapped) {
  for (const bool behind : {false, true}) {
    EXPECT_EXIT(
        {
          const auto buffer = device_->allocate_fenced(1000);
          const auto start = static_cast<std::int64_t>((*buffer)->address());
          ExecutionPlan plan;
          plan.launches = {launch(
              "store_at", {1, 1, 1}, {1, 1, 1},
              {number(ArgumentKind::int64, behind ? start + (*buffer)->bytes() : start - 4)})};
          end_with(plan, {});
        },
        ::testing::ExitedWithCode(0), "ILLEGAL_ADDRESS");
  }
}

TEST_F(PoisonGpuTest, AHangEndsAtTheDeadlineAndLosesTheDevice) {
  ExecutionPlan plan;
  plan.launches = {
      launch("spin_us", {1, 1, 1}, {1, 1, 1}, {number(ArgumentKind::int64, 2'000'000)})};
  EXPECT_EXIT(
      {
        open({.deadline = std::chrono::milliseconds(200)});
        end_with(plan, {});
      },
      ::testing::ExitedWithCode(0), "did not finish within 200 ms");
}

}  // namespace
}  // namespace kernwright
