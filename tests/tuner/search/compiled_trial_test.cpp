#include "tuner/search/compiled_trial.h"

#include <gtest/gtest.h>
#include <memory>

#include "compile/launch_fit.h"
#include "tests/tuner/toy.h"

namespace kernwright {
namespace {

class CompiledTrialTest : public ::testing::Test {
 protected:
  Runner::Step check(const Resources& resources) const {
    CompiledKernel kernel;
    kernel.entries = {{"toy", resources}};
    return check_compiled(candidate_, std::make_shared<const CompiledKernel>(kernel), profile_);
  }

  ToyCatalog catalog_;
  DeviceProfile profile_ = *find_profile("h200");
  /// 64 threads per block.
  Candidate candidate_ =
      *make_candidate(**(*catalog_).kernel_template("toy/plain"), catalog_.problem(),
                      Configuration({{"A", 2}, {"B", 1}, {"R", 1}}), profile_);
};

TEST_F(CompiledTrialTest, SharedMemoryThatABlockDoesNotHaveIsNotLaunched) {
  candidate_.plan.launches[0].dynamic_smem = 200'000;
  const int left = static_cast<int>(profile_.smem_per_block_optin) - 200'000;
  EXPECT_EQ(check({.static_smem_bytes = left}).outcome, Outcome::ok);
  const Runner::Step step = check({.static_smem_bytes = left + 1});
  EXPECT_EQ(step.outcome, Outcome::launch_failed);
  EXPECT_EQ(step.detail, "toy needs 232449 bytes of shared memory, a block has 232448");
}

TEST_F(CompiledTrialTest, RegistersAreHandedOutByEightsToWholeWarps) {
  candidate_.plan.launches[0].block = {33, 1, 8};  // 9 warps
  EXPECT_EQ(check({.registers = 224}).outcome, Outcome::ok) << "64512 of 65536";
  const Runner::Step step = check({.registers = 225});
  EXPECT_EQ(step.outcome, Outcome::launch_failed);
  EXPECT_EQ(step.detail, "toy needs 66816 registers per block, an SM has 65536");
}

TEST_F(CompiledTrialTest, ACompileThatTookTooLongTimedOut) {
  EXPECT_EQ(check_compiled(candidate_, Error{ErrorCode::timed_out, "60 s"}, profile_).outcome,
            Outcome::timed_out);
  EXPECT_EQ(check_compiled(candidate_, Error{ErrorCode::compile, "line 1"}, profile_).outcome,
            Outcome::compile_failed);
}

TEST_F(CompiledTrialTest, TheTraitsAreThoseOfPlanAndCode) {
  candidate_.plan.launches.push_back(candidate_.plan.launches[0]);
  candidate_.plan.launches[1].dynamic_smem = 1000;
  candidate_.plan.workspaces = {{.name = "partials", .bytes = 300}};
  CompiledKernel kernel;
  kernel.entries = {{"toy", {.registers = 40, .static_smem_bytes = 24}}};
  EXPECT_FALSE(traits_of(candidate_, kernel).warned);
  kernel.warnings = {"wgmma serialised"};
  const Traits traits = traits_of(candidate_, kernel);
  EXPECT_TRUE(traits.warned);
  EXPECT_EQ(traits.smem_bytes, 1024);
  EXPECT_EQ(traits.workspace_bytes, 512);
  EXPECT_EQ(traits.resources.registers, 40);
}

}  // namespace
}  // namespace kernwright
