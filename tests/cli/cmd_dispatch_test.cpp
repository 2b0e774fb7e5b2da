#include "tests/cli/run_program.h"

namespace kernwright {
namespace {

using DispatchToolkitTest = ToolkitProgramTest;
using DispatchGpuTest = GpuProgramTest;

TEST_F(DispatchToolkitTest, NeedsAGpu) {
  const Ran ran = kernwright({"dispatch", "vector_add", "n=100003", "dtype=bf16", "--sku", "h200"});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_NE(ran.err.find("launches are timed on a GPU; this service works for the sku h200"),
            std::string::npos)
      << ran.err;
}

TEST_F(DispatchGpuTest, BreaksALaunchDownAndNamesTheBestPath) {
  const Ran ran = kernwright({"dispatch", "vector_add", "n=100003", "dtype=bf16", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json dispatch = ran.json();
  for (const char* part : {"lookup_us", "packing_us", "driver_us", "gap_us", "kernel_us"}) {
    EXPECT_GT(dispatch[part], 0) << part;
    EXPECT_LT(dispatch[part], 1000) << part;
  }
  EXPECT_LT(dispatch["packing_us"], dispatch["driver_us"]);
  ASSERT_EQ(dispatch["paths"].size(), 3U);
  bool found = false;
  for (const auto& path : dispatch["paths"]) {
    EXPECT_GT(path["host_us"], 0);
    found = found || path["path"] == dispatch["best_path"];
  }
  EXPECT_TRUE(found) << dispatch;
  const Ran text = kernwright({"dispatch", "vector_add", "n=100003", "dtype=bf16"});
  EXPECT_NE(text.out.find("best"), std::string::npos) << text.out;
}

}  // namespace
}  // namespace kernwright
