#include "device/cuda/launcher.h"

#include <algorithm>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cuda/driver_device.h"
#include "device/program/prepared_program.h"
#include "support/text.h"
#include "tests/device/plans.h"
#include "tests/doubles/fake_driver.h"
#include "tests/results.h"

namespace kernwright {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
T read(const std::vector<std::byte>& bytes) {
  T value{};
  EXPECT_EQ(bytes.size(), sizeof(T));
  std::memcpy(&value, bytes.data(), std::min(sizeof(T), bytes.size()));
  return value;
}

/// Everything that a plan can ask for, over two kernels.
ExecutionPlan full_plan() {
  ExecutionPlan plan;
  plan.tensors = {tensor("a", TensorRole::in, DType::bf16, {32, 64}),
                  tensor("d", TensorRole::out, DType::fp32, {32})};
  plan.scalars = {{.name = "alpha", .dtype = DType::fp32, .default_value = 1, .when = {}},
                  {.name = "beta", .dtype = DType::bf16, .default_value = 0, .when = {}}};
  plan.tensor_maps = {{.name = "map_a",
                       .tensor = 0,
                       .dtype = DType::bf16,
                       .dims = {64, 32},
                       .strides_bytes = {128},
                       .box = {64, 8},
                       .swizzle = 128,
                       .l2_promotion = 0}};
  plan.workspaces = {{.name = "none", .bytes = 0, .zeroed = true},
                     {.name = "partials", .bytes = 100, .zeroed = false},
                     {.name = "locks", .bytes = 64, .zeroed = true}};
  LaunchPlan first =
      launch("first", {4, 2, 1}, {128, 1, 1},
             {refer(ArgumentKind::tensor_map, 0), refer(ArgumentKind::tensor, 1),
              number(ArgumentKind::int32, -5), number(ArgumentKind::int64, 1LL << 40),
              refer(ArgumentKind::scalar, 0), refer(ArgumentKind::scalar, 1),
              refer(ArgumentKind::workspace, 0), refer(ArgumentKind::workspace, 2),
              refer(ArgumentKind::tensor, ArgumentPlan::kAbsent)});
  first.cluster = {2, 1, 1};
  first.dynamic_smem = 100'000;
  LaunchPlan second = launch("second", {1, 1, 1}, {32, 1, 1}, {});
  second.programmatic = true;
  second.cooperative = true;
  plan.launches = {first, second};
  return plan;
}

class LauncherTest : public ::testing::Test {
 protected:
  LauncherTest() {
    driver_.kernels["first"] = {128, 8, 4, 8, 4, 2, 8, 8, 8};
    driver_.kernels["second"] = {};
  }

  Result<std::unique_ptr<Launcher>> load(const ExecutionPlan& plan) {
    return load_launcher(driver_.api(), FakeDriver::cubin(), plan, 0);
  }
  std::string refusal(const ExecutionPlan& plan) {
    const auto launcher = load(plan);
    EXPECT_FALSE(launcher);
    return launcher ? "" : launcher.error().message;
  }

  FakeDriver driver_;
};

TEST_F(LauncherTest, PacksEveryKindOfArgument) {
  const auto launcher = must(load(full_plan()));
  const DevicePointer tensors[] = {0x10000, 0x20000};
  const double scalars[] = {2.5, 1.5};
  must(launcher->launch(nullptr, tensors, scalars, 0x30000));

  ASSERT_EQ(driver_.launches.size(), 2U);
  const auto& arguments = driver_.launches[0].arguments;
  EXPECT_EQ(read<CUtensorMap>(arguments[0]).opaque[0], 0x10000U);
  EXPECT_EQ(read<CUtensorMap>(arguments[0]).opaque[1], 0x5a5a5a5a5a5a5a5aU);
  EXPECT_EQ(read<std::uint64_t>(arguments[1]), 0x20000U);
  EXPECT_EQ(read<std::int32_t>(arguments[2]), -5);
  EXPECT_EQ(read<std::int64_t>(arguments[3]), 1LL << 40);
  EXPECT_EQ(read<float>(arguments[4]), 2.5F);
  EXPECT_EQ(read<std::uint16_t>(arguments[5]), 0x3fc0U);
  EXPECT_EQ(read<std::uint64_t>(arguments[6]), 0U) << "a workspace of no bytes";
  EXPECT_EQ(read<std::uint64_t>(arguments[7]), 0x30000U + 256);
  EXPECT_EQ(read<std::uint64_t>(arguments[8]), 0U) << "an absent tensor";
}

TEST_F(LauncherTest, PacksTheReferencesAndMagnitudesOfAReferenceKernel) {
  ExecutionPlan plan;
  plan.tensors = {tensor("a", TensorRole::in, DType::bf16, {32}),
                  tensor("d", TensorRole::out, DType::bf16, {32})};
  plan.launches = {launch("first", {1, 1, 1}, {32, 1, 1},
                          {refer(ArgumentKind::tensor, 0), refer(ArgumentKind::reference, 1),
                           refer(ArgumentKind::magnitude, 1), refer(ArgumentKind::reference, 0)})};
  driver_.kernels["first"] = parameter_sizes(plan, plan.launches[0]);
  const auto launcher = must(load(plan));
  LaunchArguments arguments;
  arguments.tensors = {0x1000, 0x2000};
  arguments.references = {0, 0x3000};
  arguments.magnitudes = {0, 0x4000};
  ASSERT_TRUE(launcher->program().enqueue(nullptr, arguments, false));
  const FakeDriver::Launch& launched = driver_.launches[0];
  EXPECT_EQ(launched.value(0), 0x1000U);
  EXPECT_EQ(launched.value(1), 0x3000U);
  EXPECT_EQ(launched.value(2), 0x4000U);
  EXPECT_EQ(launched.value(3), 0U);
}

TEST_F(LauncherTest, ArgumentsOfEarlyLaunchesAreZeroInOthers) {
  ExecutionPlan plan;
  plan.launches = {launch("first", {1, 1, 1}, {32, 1, 1}, {number(ArgumentKind::early, -77)}),
                   launch("second", {1, 1, 1}, {32, 1, 1},
                          {number(ArgumentKind::int32, 5), number(ArgumentKind::early, 9)})};
  plan.launches[0].waits = true;
  for (const LaunchPlan& it : plan.launches) driver_.kernels[it.kernel] = parameter_sizes(plan, it);
  const auto given = [&](const ExecutionPlan& made, bool early) {
    const auto launcher = must(load(made));
    driver_.launches.clear();
    EXPECT_TRUE(launcher->program().enqueue(nullptr, LaunchArguments(), early));
    const FakeDriver::Launch &first = driver_.launches[0], &second = driver_.launches[1];
    EXPECT_EQ(read<std::int32_t>(second.arguments[0]), 5);
    return std::pair(read<std::int32_t>(first.arguments[0]),
                     read<std::int32_t>(second.arguments[1]));
  };
  EXPECT_EQ(given(plan, false), std::pair(0, 0));
  EXPECT_EQ(given(plan, true), std::pair(-77, 0)) << "the first alone starts early";
  plan.launches[1].programmatic = true;
  EXPECT_EQ(given(plan, false), std::pair(0, 9));
  EXPECT_EQ(given(plan, true), std::pair(-77, 9));
  plan.launches[0].programmatic = true;
  EXPECT_EQ(given(plan, false), std::pair(0, 9)) << "the caller decides about the first";
}

TEST_F(LauncherTest, StartsEarlyByItselfWhereThePlanSaysSo) {
  for (const bool programmatic : {false, true}) {
    ExecutionPlan plan;
    plan.launches = {launch("second", {1, 1, 1}, {32, 1, 1}, {})};
    plan.launches[0].waits = true;
    plan.launches[0].programmatic = programmatic;
    const auto launcher = must(load(plan));
    driver_.launches.clear();
    ASSERT_TRUE(launcher->launch(nullptr, {}, {}, 0));
    EXPECT_EQ(
        driver_.launches[0].attributes.count(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION),
        programmatic ? 1U : 0U);
  }
}

TEST_F(LauncherTest, ATensorMapOfACopyLiesInItsWorkspace) {
  ExecutionPlan plan = full_plan();
  plan.tensor_maps[0].workspace = 2;
  const auto launcher = must(load(plan));
  const DevicePointer tensors[] = {0x10000, 0x20000};
  const double scalars[] = {2.5, 1.5};
  ASSERT_TRUE(launcher->launch(nullptr, tensors, scalars, 0x30000));
  EXPECT_EQ(read<CUtensorMap>(driver_.launches[0].arguments[0]).opaque[0], 0x30000U + 256);

  plan.tensor_maps[0].workspace = 3;
  EXPECT_THAT(refusal(plan), HasSubstr("tensor map map_a refers to workspace 3 of 3"));
}

TEST_F(LauncherTest, AnAbsentTensorMapIsZeros) {
  ExecutionPlan plan = full_plan();
  plan.launches[0].arguments[0].index = ArgumentPlan::kAbsent;
  const auto launcher = must(load(plan));
  const DevicePointer tensors[] = {0x10000, 0x20000};
  const double scalars[] = {2.5, 1.5};
  ASSERT_TRUE(launcher->launch(nullptr, tensors, scalars, 0x30000));
  const CUtensorMap zeros{};
  const auto given = read<CUtensorMap>(driver_.launches[0].arguments[0]);
  EXPECT_EQ(std::memcmp(&given, &zeros, sizeof(zeros)), 0);
}

TEST_F(LauncherTest, ZeroesOnlyTheWorkspacesThatAskForIt) {
  const auto launcher = must(load(full_plan()));
  const DevicePointer tensors[] = {0x10000, 0x20000};
  const double scalars[] = {2.5, 1.5};
  ASSERT_TRUE(launcher->launch(nullptr, tensors, scalars, 0x30000));
  ASSERT_EQ(driver_.fills.size(), 1U);
  EXPECT_EQ(driver_.fills[0].to, 0x30000U + 256);
  EXPECT_EQ(driver_.fills[0].bytes, 64U);
}

TEST_F(LauncherTest, SetsGeometryAndAttributesPerLaunch) {
  const auto launcher = must(load(full_plan()));
  EXPECT_EQ(driver_.set_attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES], 100'000);
  EXPECT_EQ(driver_.set_attributes.count(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED), 0U);
  const DevicePointer tensors[] = {0x10000, 0x20000};
  const double scalars[] = {2.5, 1.5};
  ASSERT_TRUE(launcher->launch(nullptr, tensors, scalars, 0x30000));

  const FakeDriver::Launch& first = driver_.launches[0];
  EXPECT_EQ(first.geometry, (std::vector<unsigned int>{4, 2, 1, 128, 1, 1, 100'000}));
  ASSERT_EQ(first.attributes.size(), 1U);
  const CUlaunchAttributeValue& cluster =
      first.attributes.at(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  EXPECT_EQ(cluster.clusterDim.x, 2U);
  EXPECT_EQ(cluster.clusterDim.y, 1U);
  EXPECT_EQ(cluster.clusterDim.z, 1U);
  const auto& second = driver_.launches[1].attributes;
  EXPECT_EQ(second.size(), 2U);
  EXPECT_EQ(second.at(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative, 1);
  EXPECT_EQ(second.at(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
                .programmaticStreamSerializationAllowed,
            1);
}

TEST_F(LauncherTest, LargeClustersAskForTheNonPortableSize) {
  ExecutionPlan plan;
  plan.launches = {launch("second", {16, 1, 1}, {32, 1, 1}, {})};
  plan.launches[0].cluster = {16, 1, 1};
  ASSERT_TRUE(load(plan));
  EXPECT_EQ(driver_.set_attributes[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED], 1);
}

TEST_F(LauncherTest, TwoLaunchesOfOneKernelGetTheLargerSharedMemory) {
  ExecutionPlan plan;
  plan.launches = {launch("second", {1, 1, 1}, {32, 1, 1}, {}),
                   launch("second", {1, 1, 1}, {32, 1, 1}, {})};
  plan.launches[0].dynamic_smem = 90'000;
  plan.launches[1].dynamic_smem = 60'000;
  ASSERT_TRUE(load(plan));
  EXPECT_EQ(driver_.set_attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES], 90'000);
}

TEST_F(LauncherTest, RefusesWhatThePlanAndTheCubinDisagreeOn) {
  ExecutionPlan plan;
  plan.launches = {launch("missing", {1, 1, 1}, {32, 1, 1}, {})};
  EXPECT_THAT(refusal(plan), HasSubstr("kernel missing: cuLibraryGetKernel"));

  plan.launches = {launch("second", {1, 1, 1}, {32, 1, 1}, {number(ArgumentKind::int32, 1)})};
  EXPECT_THAT(refusal(plan), HasSubstr("takes 0 parameters; the launch gives 1"));

  driver_.kernels["second"] = {4, 8};
  EXPECT_THAT(refusal(plan), HasSubstr("takes 2 parameters; the launch gives 1"));

  driver_.kernels["second"] = {8};
  EXPECT_THAT(refusal(plan), HasSubstr("parameter 0 has 8 bytes; the launch gives 4 (int32)"));
}

TEST_F(LauncherTest, AFurtherPlanAsksTheDriverNothingAboutItsKernels) {
  ExecutionPlan plan;
  plan.launches = {launch("second", {1, 1, 1}, {32, 1, 1}, {})};
  const auto launcher = must(load(plan));
  driver_.kernels["second"] = {8};
  plan.launches[0].grid = {2, 1, 1};
  EXPECT_TRUE(launcher->with(std::make_shared<const CompactPlan>(plan)));
  plan.launches[0].block = {2048, 1, 1};
  EXPECT_FALSE(launcher->with(std::make_shared<const CompactPlan>(plan)))
      << "limits count for each";
}

TEST_F(LauncherTest, CodeIsLoadedBeforeTheFirstLaunch) {
  const auto launcher = must(load(full_plan()));
  EXPECT_EQ(std::ranges::count(driver_.calls, "cuFuncLoad"), 2) << "once for each kernel";
  must(launcher->with(std::make_shared<const CompactPlan>(full_plan())));
  EXPECT_EQ(std::ranges::count(driver_.calls, "cuFuncLoad"), 2);
  driver_.failures["cuFuncLoad"] = CUDA_ERROR_OUT_OF_MEMORY;
  const std::string other = FakeDriver::cubin() + '\0';
  EXPECT_TRUE(load_launcher(driver_.api(), other, full_plan(), 0)) << "a launch would say why";
}

TEST_F(LauncherTest, AFurtherPlanEncodesOnlyTensorMapsThatDiffer) {
  ExecutionPlan plan = full_plan();
  plan.tensor_maps.push_back(plan.tensor_maps[0]);
  driver_.current = reinterpret_cast<CUcontext>(0xcc);
  const auto launcher = must(load(plan));
  driver_.calls.clear();
  plan.launches[0].grid[0] *= 2;
  plan.tensor_maps[1].dims[0] *= 2;
  const auto further = must(launcher->with(std::make_shared<const CompactPlan>(plan)));
  EXPECT_THAT(driver_.calls, ElementsAre("cuTensorMapEncodeTiled"));
  EXPECT_EQ(driver_.encodings.back().dims[0], plan.tensor_maps[1].dims[0]);
}

TEST_F(LauncherTest, APlanOfTheSameFormIsLaunchedWithItsOwnNumbers) {
  driver_.current = reinterpret_cast<CUcontext>(0xcc);
  const auto form = std::make_shared<const PlanForm>(full_plan());
  const auto base = must(load(full_plan()));
  const auto launcher = must(base->with(std::make_shared<const CompactPlan>(form)));
  ExecutionPlan other = full_plan();
  other.workspaces[0].bytes = 300;
  other.workspaces[2].bytes = 0;
  other.launches[0].grid = {6, 3, 1};
  other.launches[0].arguments[2].value = 7;
  other.launches[0].arguments[3].value = -1;
  driver_.calls.clear();
  const auto plan = std::make_shared<const CompactPlan>(form, PlanForm(other).numbers,
                                                        total_bytes(other.tensors));
  const auto further = must(launcher->with(plan));
  EXPECT_TRUE(driver_.calls.empty()) << "no map differs";
  EXPECT_EQ(further->plan().launches, other.launches);
  EXPECT_EQ(further->plan().workspaces, other.workspaces);

  const DevicePointer tensors[] = {0x10000, 0x20000};
  const double scalars[] = {2.5, 1.5};
  must(further->launch(nullptr, tensors, scalars, 0x30000));
  const FakeDriver::Launch& first = driver_.launches[0];
  EXPECT_EQ(first.geometry, (std::vector<unsigned int>{6, 3, 1, 128, 1, 1, 100'000}));
  EXPECT_EQ(read<std::int32_t>(first.arguments[2]), 7);
  EXPECT_EQ(read<std::int64_t>(first.arguments[3]), -1);
  EXPECT_EQ(read<std::uint64_t>(first.arguments[6]), 0x30000U) << "it has bytes here";
  EXPECT_EQ(read<std::uint64_t>(first.arguments[7]), 0U) << "and the other has none";
  ASSERT_EQ(driver_.fills.size(), 1U);
  EXPECT_EQ(driver_.fills[0].to, 0x30000U);
  EXPECT_EQ(driver_.fills[0].bytes, 300U);

  other.tensor_maps[0].dims[1] *= 2;
  must(launcher->with(std::make_shared<const CompactPlan>(form, PlanForm(other).numbers, 0)));
  EXPECT_THAT(driver_.calls, Contains("cuTensorMapEncodeTiled"));
  EXPECT_EQ(driver_.encodings.back().dims[1], other.tensor_maps[0].dims[1]);
}

TEST_F(LauncherTest, AReservedWorkspaceIsTakenAndGivenBackOnAStreamOfItsOwn) {
  ExecutionPlan plan = full_plan();
  driver_.current = reinterpret_cast<CUcontext>(0xcc);
  for (WorkspacePlan& workspace : plan.workspaces) workspace.bytes = 0;
  const auto launcher = must(load(plan));
  ASSERT_EQ(driver_.alive.count("memory pool"), 1U) << "other sizes need it";
  must(launcher->reserve_workspace(0));
  EXPECT_TRUE(driver_.pool_memory.empty());
  driver_.capture_status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  must(launcher->reserve_workspace(5'000));
  EXPECT_EQ(driver_.capture_status, CU_STREAM_CAPTURE_STATUS_ACTIVE) << "ends no capture";
  ASSERT_EQ(driver_.pool_memory.size(), 1U);
  const FakeDriver::PoolMemory& memory = driver_.pool_memory[0];
  EXPECT_EQ(memory.bytes, 5'000U);
  EXPECT_NE(memory.taken_on, nullptr);
  EXPECT_EQ(memory.taken_on, memory.returned_on);
  EXPECT_EQ(driver_.alive.count("stream"), 0U);
  driver_.failures["cuMemAllocFromPoolAsync"] = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_THAT(launcher->reserve_workspace(5'000), Fails(ErrorCode::device));
}

TEST_F(LauncherTest, RefusesWhatTheGpuCannotCarryWithBothValues) {
  ExecutionPlan plan;
  plan.launches = {launch("second", {1, 1, 1}, {512, 1, 1}, {})};
  driver_.kernel_attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 384;
  EXPECT_THAT(refusal(plan), HasSubstr("512 threads per block > 384"));

  plan.launches = {launch("second", {3, 1, 1}, {32, 1, 1}, {})};
  plan.launches[0].cluster = {2, 1, 1};
  EXPECT_THAT(refusal(plan), HasSubstr("grid extent 3 is not a multiple of the cluster's 2"));

  plan.launches = {launch("second", {1, 1, 1}, {32, 1, 1}, {})};
  plan.launches[0].dynamic_smem = 232'449;
  EXPECT_THAT(refusal(plan), HasSubstr("232449 dynamic bytes of shared memory > 232448"));
}

TEST_F(LauncherTest, RefusesMoreThanALaunchCanKeepOnItsStack) {
  ExecutionPlan plan;
  plan.launches = {launch("second", {1, 1, 1}, {32, 1, 1},
                          std::vector<ArgumentPlan>(PreparedProgram::kMaxArguments + 1,
                                                    number(ArgumentKind::int32, 1)))};
  EXPECT_THAT(refusal(plan),
              HasSubstr(concat(PreparedProgram::kMaxArguments + 1, " arguments; at most ",
                               PreparedProgram::kMaxArguments)));
  plan = full_plan();
  plan.tensor_maps.resize(9, plan.tensor_maps[0]);
  EXPECT_THAT(refusal(plan), HasSubstr("9 tensor maps; at most 8"));
}

TEST_F(LauncherTest, RefusesABrokenCubinBeforeTheDriverReadsIt) {
  const std::string whole = FakeDriver::cubin();
  for (const std::string& cubin : {std::string("junk"), whole.substr(0, 63), "x" + whole}) {
    EXPECT_THAT(load_launcher(driver_.api(), cubin, {}, 0), Fails(ErrorCode::corrupt));
  }
  std::string truncated = whole;
  truncated[40] = 64;  // e_shoff
  truncated[58] = 64;  // e_shentsize
  truncated[60] = 1;   // e_shnum
  EXPECT_FALSE(load_launcher(driver_.api(), truncated, {}, 0));
  EXPECT_TRUE(load_launcher(driver_.api(), truncated + std::string(64, '\0'), {}, 0));
}

TEST_F(LauncherTest, ProgramsOfTheSameBitsShareOneLibrary) {
  const auto loads = [this] {
    return std::count(driver_.calls.begin(), driver_.calls.end(), "cuLibraryLoadData");
  };
  ExecutionPlan larger = full_plan();
  larger.launches[0].dynamic_smem = 120'000;
  ExecutionPlan smaller = full_plan();
  smaller.launches[0].dynamic_smem = 60'000;
  auto first = load(full_plan());
  ASSERT_TRUE(first) << first.error().message;
  auto second = load(larger);
  ASSERT_TRUE(second) << second.error().message;
  ASSERT_TRUE(load(smaller));
  EXPECT_EQ(loads(), 1);
  EXPECT_EQ(driver_.set_attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES], 120'000)
      << "a program that needs less must not take from another";

  const std::string other = FakeDriver::cubin() + '\0';
  ASSERT_TRUE(load_launcher(driver_.api(), other, full_plan(), 0));
  EXPECT_EQ(loads(), 2);

  *first = nullptr;
  EXPECT_FALSE(driver_.alive.empty());
  *second = nullptr;
  EXPECT_TRUE(driver_.alive.empty());
  ASSERT_TRUE(load(full_plan()));
  EXPECT_EQ(loads(), 3);
}

TEST_F(LauncherTest, AKernelIsAllowedTheSharedMemoryOfFurtherSizes) {
  const auto form = std::make_shared<const PlanForm>(full_plan());
  const auto base = must(load(full_plan()));
  const auto launcher = must(base->with(std::make_shared<const CompactPlan>(form)));
  ExecutionPlan larger = full_plan();
  larger.launches[0].dynamic_smem = 120'000;
  const auto plan = std::make_shared<const CompactPlan>(form, PlanForm(larger).numbers,
                                                        total_bytes(larger.tensors));
  driver_.calls.clear();
  const auto further = must(launcher->with(plan));
  EXPECT_EQ(driver_.set_attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES], 120'000);
  EXPECT_EQ(further->plan().launches[0].dynamic_smem, 120'000U);
  driver_.failures["cuKernelSetAttribute"] = CUDA_ERROR_INVALID_VALUE;
  larger.launches[0].dynamic_smem = 300'000;
  EXPECT_THAT(
      launcher->with(std::make_shared<const CompactPlan>(form, PlanForm(larger).numbers, 0)),
      Fails(ErrorCode::device, HasSubstr("first with 300000 dynamic bytes of shared memory")));
}

TEST_F(LauncherTest, RefusesWrongArgumentsOfALaunch) {
  const auto launcher = must(load(full_plan()));
  const DevicePointer tensors[] = {0x10000, 0x20000};
  const DevicePointer crooked[] = {0x10000, 0x20008};
  const double scalars[] = {1, 2};
  const auto message = [](const Result<void>& result) {
    EXPECT_FALSE(result);
    return result ? std::string() : result.error().message;
  };
  const Launcher& it = *launcher;
  EXPECT_THAT(message(it.launch(nullptr, {tensors, 1}, scalars, 1)),
              HasSubstr("takes 2 tensors; 1"));
  EXPECT_THAT(message(it.launch(nullptr, tensors, {}, 1)), HasSubstr("takes 2 scalars; 0"));
  EXPECT_THAT(message(it.launch(nullptr, crooked, scalars, 1)), HasSubstr("tensor d"));
  EXPECT_THAT(message(it.launch(nullptr, tensors, scalars, 0)),
              HasSubstr("workspace of 512 bytes"));
  EXPECT_TRUE(driver_.launches.empty());
}

TEST_F(LauncherTest, AFailedLaunchCarriesTheDriversWords) {
  const auto launcher = must(load(full_plan()));
  driver_.failures["cuLaunchKernelEx"] = CUDA_ERROR_OUT_OF_MEMORY;
  const DevicePointer tensors[] = {0x10000, 0x20000};
  const double scalars[] = {1, 2};
  EXPECT_THAT(launcher->launch(nullptr, tensors, scalars, 0x30000),
              Fails("cuLaunchKernelEx: CUDA_ERROR_OUT_OF_MEMORY (out of memory)"));
}

TEST_F(LauncherTest, UsesThePrimaryContextWhereTheCallerHasNone) {
  ExecutionPlan plain;
  plain.launches = {launch("second", {1, 1, 1}, {32, 1, 1}, {})};
  const auto retained = [this] {
    return std::count(driver_.calls.begin(), driver_.calls.end(), "cuDevicePrimaryCtxRetain");
  };
  for (const ExecutionPlan& plan : {plain, full_plan()}) {
    const auto launcher = must(load(plan));
    EXPECT_EQ(driver_.current, nullptr) << "the caller's context is restored";
  }
  EXPECT_EQ(retained(), 2);
  driver_.current = reinterpret_cast<CUcontext>(0xcc);
  ASSERT_TRUE(load(full_plan()));
  EXPECT_EQ(retained(), 2);
  EXPECT_TRUE(driver_.alive.empty());
  EXPECT_EQ(driver_.destroyed_twice, 0);
}

}  // namespace
}  // namespace kernwright
