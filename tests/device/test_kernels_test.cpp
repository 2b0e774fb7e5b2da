#include <gtest/gtest.h>

#include "compile/compiler.h"
#include "gpu_kernels.h"

namespace kernwright {
namespace {

// So that a machine without a GPU finds their mistakes too.
TEST(TestKernelsToolkitTest, EveryGpuTestKernelCompiles) {
  const std::unique_ptr<Compiler> compiler = make_toolkit_compiler();
  if (const Result<std::string> toolkit = compiler->identity(); !toolkit) {
    GTEST_SKIP() << toolkit.error().message;
  }
  for (const auto& [source, target] :
       {std::pair{kGpuKernels, "sm_80"}, {kGpuKernels, "sm_90"}, {kHopperKernels, "sm_90"}}) {
    CompileRequest request;
    request.name = "test.cu";
    request.source = source;
    request.target = target;
    const Result<CompiledKernel> kernel = compiler->compile(request);
    EXPECT_TRUE(kernel) << kernel.error().message;
  }
}

}  // namespace
}  // namespace kernwright
