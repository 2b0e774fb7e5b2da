#include "cache/record_store.h"
#include "tests/cache/samples.h"
#include "tests/cli/run_program.h"

namespace kernwright {
namespace {

/// A cache with one measured record of the sample's problem.
class ShowTest : public ProgramTest {
 protected:
  void keep(const LaunchPaths& paths) {
    TuningRecord record = sample_record(4096);
    record.launch_paths = paths;
    const auto put = RecordStore(cache()).put(record);
    ASSERT_TRUE(put) << put.error().message;
  }
  Ran show(std::vector<std::string> options = {}) {
    std::vector<std::string> words{"show",   "matmul",     "m=4096", "n=6144",
                                   "k=4096", "dtype=bf16", "--sku",  "h200"};
    words.insert(words.end(), options.begin(), options.end());
    return kernwright(words);
  }
};

TEST_F(ShowTest, TellsEveryLaunchPathAndTheBest) {
  keep({{{KernelPath::stream, 3.25, 12.5}, {KernelPath::graph, 1.5, 11.5}}, KernelPath::graph});
  const Ran text = show();
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(
      text.out.find("  launched best by graph; back to back (host): stream 12.5 us (3.25 us), "
                    "graph 11.5 us (1.5 us)\n"),
      std::string::npos)
      << text.out;
  const nlohmann::json shown = show({"--json"}).json();
  EXPECT_EQ(shown["best_path"], "graph");
  ASSERT_EQ(shown["launch_paths"].size(), 2U);
  EXPECT_EQ(shown["launch_paths"][0],
            (nlohmann::json{{"path", "stream"}, {"host_us", 3.25}, {"period_us", 12.5}}));
}

TEST_F(ShowTest, SaysWhereLaunchPathsWereNotMeasured) {
  keep({});
  const Ran text = show();
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("  launch paths: not measured\n"), std::string::npos) << text.out;
  const nlohmann::json shown = show({"--json"}).json();
  EXPECT_TRUE(shown["best_path"].is_null());
  EXPECT_TRUE(shown["launch_paths"].empty());
}

}  // namespace
}  // namespace kernwright
