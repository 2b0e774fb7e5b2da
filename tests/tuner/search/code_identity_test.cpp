#include "tuner/search/code_identity.h"

#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <utility>

namespace kernwright {
namespace {

Candidate candidate() {
  Candidate made;
  LaunchPlan launch;
  launch.kernel = "main_loop";
  launch.arguments = {{.kind = ArgumentKind::int32, .index = 0, .value = 8}};
  made.plan.launches = {launch};
  TensorMapPlan map;
  map.dims = {64, 32};
  map.strides_bytes = {128};
  map.box = {64, 8};
  made.plan.tensor_maps = {map};
  made.plan.workspaces = {{.name = "partials", .bytes = 256}};
  return made;
}

CompiledKernel kernel_of(std::string bits) {
  CompiledKernel kernel;
  kernel.bits = std::move(bits);
  return kernel;
}

TEST(CodeIdentityTest, EverythingThatIsLaunchedIsPartOfIt) {
  const CompiledKernel kernel = kernel_of("bits");
  const Digest one = code_identity(candidate(), kernel);
  EXPECT_EQ(code_identity(candidate(), kernel), one);
  EXPECT_NE(code_identity(candidate(), kernel_of("other")), one);
  const std::map<std::string, std::function<void(ExecutionPlan&)>> changes = {
      {"kernel", [](ExecutionPlan& plan) { plan.launches[0].kernel = "tail"; }},
      {"grid", [](ExecutionPlan& plan) { plan.launches[0].grid[0] = 2; }},
      {"block", [](ExecutionPlan& plan) { plan.launches[0].block[1] = 2; }},
      {"cluster", [](ExecutionPlan& plan) { plan.launches[0].cluster[2] = 2; }},
      {"shared memory", [](ExecutionPlan& plan) { plan.launches[0].dynamic_smem = 16; }},
      {"cooperative", [](ExecutionPlan& plan) { plan.launches[0].cooperative = true; }},
      {"programmatic", [](ExecutionPlan& plan) { plan.launches[0].programmatic = true; }},
      {"argument's kind",
       [](ExecutionPlan& plan) { plan.launches[0].arguments[0].kind = ArgumentKind::int64; }},
      {"argument's index", [](ExecutionPlan& plan) { plan.launches[0].arguments[0].index = 1; }},
      {"argument's value", [](ExecutionPlan& plan) { plan.launches[0].arguments[0].value = 9; }},
      {"one launch more", [](ExecutionPlan& plan) { plan.launches.emplace_back(); }},
      {"map's tensor", [](ExecutionPlan& plan) { plan.tensor_maps[0].tensor = 1; }},
      {"map's workspace", [](ExecutionPlan& plan) { plan.tensor_maps[0].workspace = 0; }},
      {"map's dtype", [](ExecutionPlan& plan) { plan.tensor_maps[0].dtype = DType::fp16; }},
      {"map's dims", [](ExecutionPlan& plan) { plan.tensor_maps[0].dims[1] = 33; }},
      {"map's strides", [](ExecutionPlan& plan) { plan.tensor_maps[0].strides_bytes[0] = 144; }},
      {"map's box", [](ExecutionPlan& plan) { plan.tensor_maps[0].box[1] = 16; }},
      {"map's swizzle", [](ExecutionPlan& plan) { plan.tensor_maps[0].swizzle = 64; }},
      {"map's promotion", [](ExecutionPlan& plan) { plan.tensor_maps[0].l2_promotion = 128; }},
      {"workspace", [](ExecutionPlan& plan) { plan.workspaces[0].bytes = 512; }},
      {"zeroed", [](ExecutionPlan& plan) { plan.workspaces[0].zeroed = true; }},
      {"kept zero", [](ExecutionPlan& plan) { plan.workspaces[0].kept_zero = true; }},
  };
  std::map<Digest, std::string> seen{{one, "no change"}};
  for (const auto& [what, change] : changes) {
    Candidate changed = candidate();
    change(changed.plan);
    const auto [known, added] = seen.emplace(code_identity(changed, kernel), what);
    EXPECT_TRUE(added) << what << " has the identity of: " << known->second;
  }
}

TEST(CodeIdentityTest, NamesOfConfigurationsAreNoPartOfIt) {
  const CompiledKernel kernel = kernel_of("bits");
  Candidate other = candidate();
  other.configuration = Configuration({{"A", 1}});
  EXPECT_EQ(code_identity(other, kernel), code_identity(candidate(), kernel));
}

}  // namespace
}  // namespace kernwright
