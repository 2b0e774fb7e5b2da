// Compiles the device headers without an operation, as kernels of another operation than matmul
// would use them. tests/device/tile_headers_gpu_test.cpp tests their results.

#include <algorithm>
#include <gtest/gtest.h>
#include <string_view>

#include "compile/cubin.h"
#include "tests/compile/tile_kernels.h"
#include "tests/compile/toolkit_world.h"

namespace kernwright {
namespace {

class TileHeadersToolkitTest : public ToolkitWorld {
 protected:
  CompileRequest request_for(const char* source) const {
    CompileRequest request;
    request.name = "tile_kernels.cu";
    request.source = source;
    request.target = "sm_90a";
    for (const DeviceHeader& header : catalog_->headers()) {
      request.headers.emplace_back(header.name, header.text);
    }
    return request;
  }
};

TEST_F(TileHeadersToolkitTest, KernelsOfNoOperationCompileCleanly) {
  const CompileResult result = pool_->submit(request_for(kTileKernels)).get();
  ASSERT_TRUE(result) << result.error().message;
  const CompiledKernel& kernel = **result;
  EXPECT_EQ(kernel.resources().spill_bytes(), 0);
  EXPECT_TRUE(kernel.warnings.empty()) << kernel.warnings.front();
  const auto counts = count_instructions(kernel.bits);
  ASSERT_TRUE(counts) << counts.error().message;
  ASSERT_EQ(counts->size(), 4U);
  for (const InstructionCounts& count : *counts) {
    const bool multiplies = count.kernel == "two_products";
    const int products = count.count("HGMMA");
    // 4 steps of q k^T and of p v each. One wait for 4: the compiler serialises nothing.
    EXPECT_EQ(products >= 8, multiplies) << count.kernel;
    EXPECT_LE(4 * count.count("DEPBAR"), multiplies ? 2 * products : 4) << count.kernel;
    EXPECT_GE(count.count("UTMALDG"), 1) << count.kernel;
    EXPECT_GE(count.count("UTMASTG"), 1) << count.kernel;
    EXPECT_EQ(count.count("LDL") + count.count("STL"), 0) << count.kernel;
  }
}

TEST_F(TileHeadersToolkitTest, EachHeaderThatKnowsNoOperationCompilesAlone) {
  std::vector<Build> compiled;
  std::vector<std::string> names;
  constexpr std::string_view kFolders[] = {"kernwright/math/", "kernwright/ptx/",
                                           "kernwright/tile/"};
  for (const DeviceHeader& header : catalog_->headers()) {
    const auto lies_in = [&](std::string_view folder) { return header.name.starts_with(folder); };
    if (std::ranges::none_of(kFolders, lies_in)) continue;
    names.push_back(header.name);
    const std::string source = "#include <" + header.name + ">\n";
    compiled.push_back(pool_->submit(request_for(source.c_str())));
  }
  EXPECT_GE(names.size(), 20U);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const CompileResult& result = compiled[i].get();
    EXPECT_TRUE(result) << names[i] << ": " << result.error().message;
  }
}

}  // namespace
}  // namespace kernwright
