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
  EXPECT_TRUE(dispatch["recorded_best_path"].is_null()) << "it was only predicted";
  const Ran text = kernwright({"dispatch", "vector_add", "n=100003", "dtype=bf16"});
  EXPECT_NE(text.out.find("best"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("no best path is recorded"), std::string::npos) << text.out;
  expect_width(text.out, 80);
}

TEST_F(DispatchGpuTest, TheRecordedBestPathIsTheBestOrTiesWithIt) {
  for (const std::vector<std::string>& problem :
       {std::vector<std::string>{"matmul", "m=16", "n=4096", "k=4096", "dtype=bf16"},
        std::vector<std::string>{"rmsnorm", "rows=128", "columns=4096", "dtype=bf16"}}) {
    const auto ask = [&](const std::string& command, const std::vector<std::string>& options) {
      std::vector<std::string> words{command};
      words.insert(words.end(), problem.begin(), problem.end());
      words.insert(words.end(), options.begin(), options.end());
      const Ran ran = kernwright(words);
      EXPECT_EQ(ran.exit_code, 0) << ran.err;
      return ran.json();
    };
    const nlohmann::json tuned = ask("tune", {"--seconds", "10", "--json"});
    ASSERT_EQ(tuned["launch_paths"].size(), 3U) << tuned;
    for (const auto& path : tuned["launch_paths"]) {
      EXPECT_GT(path["host_us"], 0) << path;
      EXPECT_GT(path["period_us"], 0) << path;
    }
    const nlohmann::json dispatch = ask("dispatch", {"--json"});
    EXPECT_EQ(dispatch["recorded_best_path"], tuned["best_path"]);
    const auto period_us = [&](const nlohmann::json& name) -> double {
      for (const auto& path : dispatch["paths"]) {
        if (path["path"] == name) return path["period_us"];
      }
      return 0;
    };
    constexpr double kTie = 1.03;  // of two measurements in two processes
    EXPECT_LE(period_us(dispatch["recorded_best_path"]), kTie * period_us(dispatch["best_path"]))
        << tuned["launch_paths"] << dispatch["paths"];
  }
}

}  // namespace
}  // namespace kernwright
