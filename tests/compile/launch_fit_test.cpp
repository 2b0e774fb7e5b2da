#include "compile/launch_fit.h"

#include <gtest/gtest.h>

#include "tests/compile/toolkit_world.h"

namespace kernwright {
namespace {

constexpr std::string_view kSource = R"(
struct alignas(64) Map { char bytes[128]; };
extern "C" __global__ void __launch_bounds__(256)
    add(float* x, int n, const __grid_constant__ Map map, unsigned short s, long long q) {
  if (n > 3) x[q] = map.bytes[n] + s;
}
extern "C" __global__ void none() {}
)";

using LaunchFitToolkitTest = ToolkitWorld;

TEST_F(LaunchFitToolkitTest, EveryCompiledKernelSaysWhatItTakes) {
  ExecutionPlan plan;
  plan.scalars.resize(1);
  plan.scalars[0].dtype = DType::bf16;
  plan.launches.resize(2);
  LaunchPlan& add = plan.launches[0];
  add = {.kernel = "add", .block = {256, 1, 1}, .ahead = {}, .arguments = {}};
  for (const ArgumentKind kind :
       {ArgumentKind::tensor, ArgumentKind::int32, ArgumentKind::tensor_map, ArgumentKind::scalar,
        ArgumentKind::int64}) {
    add.arguments.push_back({.kind = kind});
  }
  plan.launches[1].kernel = "none";
  for (const std::string target : {"sm_80", "sm_89", "sm_90a", "sm_100a"}) {
    CompileRequest request;
    request.name = "add.cu";
    request.source = kSource;
    request.target = target;
    const CompileResult compiled = pool_->submit(std::move(request)).get();
    ASSERT_TRUE(compiled) << compiled.error().message;
    const auto misfit = [&](const auto& change) {
      ExecutionPlan other = plan;
      change(other.launches[0], other.launches[1]);
      const std::optional<Misfit> found = find_misfit(other, **compiled);
      return found ? found->what : std::string();
    };
    EXPECT_EQ(misfit([](LaunchPlan&, LaunchPlan&) {}), "") << target;
    EXPECT_EQ(misfit([](LaunchPlan& one, LaunchPlan&) { one.arguments.pop_back(); }),
              "kernel add takes 5 parameters; the launch gives 4");
    EXPECT_EQ(misfit([](LaunchPlan&, LaunchPlan& two) { two.arguments.emplace_back(); }),
              "kernel none takes 0 parameters; the launch gives 1");
    EXPECT_EQ(misfit([](LaunchPlan& one, LaunchPlan&) { one.arguments[2].kind = {}; }),
              "kernel add: parameter 2 has 128 bytes; the launch gives 8 (pointer)");
    EXPECT_EQ(misfit([](LaunchPlan& one, LaunchPlan&) { one.block = {128, 4, 1}; }),
              "kernel add: 512 threads per block > 256 that its launch bounds allow");
    EXPECT_EQ(misfit([](LaunchPlan&, LaunchPlan& two) {
                two.kernel = "sub";
              }).rfind("no kernel \"sub\", there are: ", 0),
              0U);
  }
}

TEST_F(LaunchFitToolkitTest, AFailedCompileSaysWhatPtxasRefuses) {
  CompileRequest request;
  request.name = "large.cu";
  request.source = R"(extern "C" __global__ void large(float* x) {
    __shared__ float y[30000];
    y[threadIdx.x] = x[0];
    __syncthreads();
    x[threadIdx.x] = y[threadIdx.x * 7 % 30000];
  })";
  request.target = "sm_90";
  const CompileResult compiled = pool_->submit(std::move(request)).get();
  ASSERT_FALSE(compiled);
  const std::string& message = compiled.error().message;
  EXPECT_NE(message.find("'large' uses too much shared data (0x1d4c0 bytes"), std::string::npos)
      << message;
  EXPECT_EQ(message.find("ptxas info"), std::string::npos) << message;
}

}  // namespace
}  // namespace kernwright
