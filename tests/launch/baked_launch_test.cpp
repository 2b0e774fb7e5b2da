#include <algorithm>
#include <bit>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "scripted_kernel.h"
#include "support/text.h"
#include "tests/doubles/fake_driver.h"
#include "tests/results.h"
#include <kernwright/baked_launch.h>

namespace kernwright {
namespace {

using ::testing::HasSubstr;

class BakedLaunchTest : public ::testing::Test {
 protected:
  BakedLaunchTest() {
    driver_.current = reinterpret_cast<CUcontext>(0xcc);
    driver_.kernels["scale"] = parameter_sizes(plan_, plan_.launches[0]);
    kernel_ = load(false);
  }

  /// Kernels with the same `bits` share a library.
  std::shared_ptr<LoadedKernel> load(bool check_launches, std::string_view bits = {}) {
    auto launcher = must(load_launcher(driver_.api(), concat(FakeDriver::cubin(), bits), plan_, 0));
    return make_kernel(plan_, std::move(launcher), check_launches);
  }
  Result<BakedLaunch> bake() { return kernel_->handle().bake({kX, kY}); }

  /// Returns the launch that would run now.
  FakeDriver::Launch launched(BakedLaunch& baked) {
    const Result<void> done = baked.launch(nullptr);
    EXPECT_TRUE(done) << done.error().message;
    return driver_.executables[driver_.graph_launches.back()].front();
  }
  template <typename T>
  static std::string message(const Result<T>& result) {
    EXPECT_FALSE(result);
    return result ? std::string() : result.error().message;
  }

  static constexpr std::uint64_t kX = 0x10000;
  static constexpr std::uint64_t kY = 0x20000;
  ExecutionPlan plan_ = mapped_plan();
  FakeDriver driver_;
  std::shared_ptr<LoadedKernel> kernel_;
};

TEST_F(BakedLaunchTest, LaunchesWithTensorMapScalarAndAWorkspaceOfItsOwn) {
  BakedLaunch baked = must(bake());
  EXPECT_EQ(driver_.alive.count("memory"), 1U);
  driver_.calls.clear();
  const FakeDriver::Launch launch = launched(baked);
  EXPECT_EQ(driver_.calls, std::vector<std::string>{"cuGraphLaunch"});
  EXPECT_EQ(launch.value(0), kX);
  EXPECT_EQ(launch.value(1), kY);
  EXPECT_EQ(launch.value(2), std::bit_cast<std::uint32_t>(2.0F)) << "the default";
  EXPECT_NE(launch.value(3), 0U);
}

TEST_F(BakedLaunchTest, RebindingTakesOtherPointersAndScalarsAndKeepsTheWorkspace) {
  BakedLaunch baked = must(bake());
  const std::uint64_t workspace = launched(baked).value(3);
  ASSERT_TRUE(baked.rebind({kX + 256, kY + 256, 3.0}));
  const FakeDriver::Launch launch = launched(baked);
  EXPECT_EQ(launch.value(0), kX + 256);
  EXPECT_EQ(launch.value(1), kY + 256);
  EXPECT_EQ(launch.value(2), std::bit_cast<std::uint32_t>(3.0F));
  EXPECT_EQ(launch.value(3), workspace);

  const auto changes = [&] {
    return std::ranges::count(driver_.calls, "cuGraphExecKernelNodeSetParams");
  };
  const std::ptrdiff_t before = changes();
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(baked.rebind({kX, kY}));
    EXPECT_EQ(launched(baked).value(0), kX);
    ASSERT_TRUE(baked.rebind({kX + 256, kY + 256, 3.0}));
    EXPECT_EQ(launched(baked).value(0), kX + 256);
  }
  EXPECT_EQ(changes(), before) << "A-B-A-B";
}

TEST_F(BakedLaunchTest, AWrongRebindNamesTheArgumentAndChangesNothing) {
  BakedLaunch baked = must(bake());
  EXPECT_THAT(message(baked.rebind({kX})), HasSubstr("takes 2 tensors and up to 1 scalars; 1"));
  EXPECT_THAT(message(baked.rebind({kX + 8, kY})), HasSubstr("(x): must be aligned to 16 bytes"));
  EXPECT_THAT(message(baked.rebind({kX, 1.0})), HasSubstr("(y): a device pointer expected"));
  EXPECT_THAT(message(baked.rebind({kX, nullptr})), HasSubstr("(y): null pointer"));
  EXPECT_EQ(launched(baked).value(0), kX);
}

TEST_F(BakedLaunchTest, OutlivesTheKernelsOwnerAndFreesAllItHas) {
  {
    BakedLaunch baked = must(bake());
    kernel_.reset();  // as when a service closes
    EXPECT_EQ(driver_.alive.count("library"), 1U);
    EXPECT_EQ(launched(baked).value(1), kY);
    ASSERT_TRUE(baked.rebind({kX + 16, kY}));
    EXPECT_EQ(baked.summary().problem, "scale rows=32");
  }
  EXPECT_EQ(driver_.alive, std::multiset<std::string>{});
  EXPECT_EQ(driver_.destroyed_twice, 0);
}

TEST_F(BakedLaunchTest, IsAddedToACaptureAsItsKernels) {
  BakedLaunch baked = must(bake());
  EXPECT_EQ(message(baked.add_to_capture(nullptr)),
            "scale rows=32: the stream is not being captured");
  driver_.capture_status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  EXPECT_THAT(message(baked.add_to_capture(nullptr)), HasSubstr("made invalid"));

  driver_.capture_status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  ASSERT_TRUE(baked.rebind({kX, kY + 16}));
  driver_.launches.clear();
  const auto stream = reinterpret_cast<CUstream>(0x77);
  ASSERT_TRUE(baked.add_to_capture(stream));
  ASSERT_EQ(driver_.launches.size(), 1U);
  EXPECT_EQ(driver_.launches[0].stream, stream);
  EXPECT_EQ(driver_.launches[0].value(1), kY + 16);
}

TEST_F(BakedLaunchTest, NothingThatIsLoadedOrFreedEndsACapture) {
  std::shared_ptr<LoadedKernel> earlier = load(false, "earlier");
  std::optional<BakedLaunch> baked_earlier = *earlier->handle().bake({kX, kY});
  const auto alive = driver_.alive;
  driver_.capture_status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  {
    const std::shared_ptr<LoadedKernel> fresh = load(false, "fresh");
    const BakedLaunch baked = must(fresh->handle().bake({kX, kY}));
    EXPECT_EQ(driver_.alive.count("library"), alive.count("library") + 1);
  }
  EXPECT_EQ(driver_.alive, alive) << "it is freed at once";
  baked_earlier.reset();
  earlier.reset();
  EXPECT_LT(driver_.alive.count("library"), alive.count("library"));
  EXPECT_EQ(driver_.capture_status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(driver_.capture_mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

TEST_F(BakedLaunchTest, LaunchingIntoACaptureSaysWhatToUseInstead) {
  BakedLaunch baked = must(bake());
  driver_.failures["cuGraphLaunch"] = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  EXPECT_THAT(message(baked.launch(nullptr)), HasSubstr("takes add_to_capture"));
  driver_.failures["cuGraphLaunch"] = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(message(baked.launch(nullptr)),
            "scale rows=32: cuGraphLaunch: CUDA_ERROR_OUT_OF_MEMORY (out of memory)");
}

TEST_F(BakedLaunchTest, BakingNamesWhatIsMissing) {
  EXPECT_THAT(message(kernel_->handle().bake({kX})), HasSubstr("1 arguments given"));
  driver_.failures["cuMemAlloc"] = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_THAT(message(bake()), HasSubstr("workspace of scale rows=32: 256 bytes: cuMemAlloc"));
  driver_.failures.clear();
  driver_.current = nullptr;
  EXPECT_THAT(message(bake()), HasSubstr("no CUDA context is current"));
  const auto without_gpu =
      std::make_shared<LoadedKernel>(KernelSummary{}, std::make_shared<const CompactPlan>(plan_),
                                     nullptr, Error{ErrorCode::unavailable, "no GPU here"});
  EXPECT_EQ(message(without_gpu->handle().bake({kX, kY})), "no GPU here");
}

TEST_F(BakedLaunchTest, AMovedFromObjectSaysSo) {
  BakedLaunch baked = must(bake());
  BakedLaunch other = std::move(baked);
  EXPECT_TRUE(other.launch(nullptr));
  for (const Result<void>& result :
       // NOLINTNEXTLINE(bugprone-use-after-move): what is tested
       {baked.launch(nullptr), baked.rebind({kX, kY}), baked.add_to_capture(nullptr)}) {
    EXPECT_EQ(message(result), "the baked launch was moved to another object");
  }
}

TEST_F(BakedLaunchTest, CheckedLaunchesAskForTheFirstAndTheLastByte) {
  const auto workspace = reinterpret_cast<void*>(std::uint64_t{0x40000});
  const Kernel kernel = kernel_->handle();
  EXPECT_TRUE(kernel.launch_checked(nullptr, {kX, kY}, workspace));
  constexpr std::uint64_t kBytes = 4096;
  driver_.unreachable = {kY + kBytes - 1};
  EXPECT_THAT(message(kernel.launch_checked(nullptr, {kX, kY}, workspace)),
              HasSubstr("(y): the GPU cannot reach all of its 4096 bytes at 131072"));
  EXPECT_TRUE(kernel.launch(nullptr, {kX, kY}, workspace)) << "unchecked";
  driver_.unreachable = {0x40000 + 255};
  EXPECT_THAT(message(kernel.launch_checked(nullptr, {kX, kY}, workspace)),
              HasSubstr("the workspace's 256 bytes at 262144"));

  const auto checked = load(true);
  driver_.unreachable = {kX};
  EXPECT_THAT(message(checked->handle().launch(nullptr, {kX, kY}, workspace)), HasSubstr("(x)"));
  EXPECT_THAT(message(checked->handle().bake({kX, kY})), HasSubstr("(x)"));
  driver_.unreachable.clear();
  BakedLaunch baked = must(checked->handle().bake({kX, kY}));
  driver_.unreachable = {kX};
  EXPECT_THAT(message(baked.rebind({kX, kY})), HasSubstr("(x)"));
}

}  // namespace
}  // namespace kernwright
