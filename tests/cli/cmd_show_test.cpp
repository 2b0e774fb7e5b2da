#include <algorithm>

#include "cache/stores/record_store.h"
#include "support/text.h"
#include "tests/cache/samples.h"
#include "tests/cli/run_program.h"

namespace kernwright {
namespace {

/// A cache with one measured record of the sample's problem.
class ShowTest : public ProgramTest {
 protected:
  void keep(const LaunchTimes& paths) {
    TuningRecord record = sample_record(4096);
    record.launch_paths = paths;
    keep(record);
  }
  void keep(const TuningRecord& record) {
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
  keep(LaunchTimes{{{KernelPath::stream, 3.25, 12.5}, {KernelPath::graph, 1.5, 11.5}},
                   KernelPath::graph});
  const Ran text = show();
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("  launches  best by graph\n"
                          "  path       host  back to back\n"
                          "  stream  3.25 us       12.5 us\n"
                          "  graph   1.50 us       11.5 us\n"),
            std::string::npos)
      << text.out;
  const nlohmann::json shown = show({"--json"}).json();
  EXPECT_EQ(shown["best_path"], "graph");
  ASSERT_EQ(shown["launch_paths"].size(), 2U);
  EXPECT_EQ(shown["launch_paths"][0],
            (nlohmann::json{{"path", "stream"}, {"host_us", 3.25}, {"period_us", 12.5}}));
}

/// A record as a search of a product leaves it.
TuningRecord plausible_record() {
  TuningRecord record = sample_record(4096);
  const auto ranked = [&](std::int64_t bm, std::int64_t stages, double us, double slowdown) {
    RankedConfiguration made = record.winner;
    made.choice.configuration = Configuration({{"BM", bm},
                                               {"BN", 256},
                                               {"BK", 64},
                                               {"STAGES", stages},
                                               {"GROUP", 8},
                                               {"CLUSTER", 2},
                                               {"PERSIST", 1},
                                               {"PROGRAMMATIC", 0},
                                               {"WARPS_M", 2},
                                               {"SLICES", 1},
                                               {"AHEAD", 0},
                                               {"TRANSPOSED", 0}});
    made.measurement.samples_us = {us - 0.5, us, us + 0.5};
    made.slowdown = {slowdown, slowdown - 0.001, slowdown + 0.001};
    made.tied = false;
    return made;
  };
  record.winner = ranked(128, 4, 255.1, 0);
  record.runners_up = {ranked(128, 3, 255.0, -0.0004), ranked(64, 4, 258.25, 0.0124),
                       ranked(192, 3, 262.5, 0.029), ranked(64, 3, 280, 0.1)};
  record.runners_up[0].tied = true;
  record.baseline = ranked(64, 2, 300, 0.162);
  record.baseline->choice.kernel_template = "matmul/tiled";
  record.rounds = {};
  record.launch_paths = {{{KernelPath::stream, 3.25, 256.1}, {KernelPath::graph, 1.5, 255.4}},
                         KernelPath::graph};
  return record;
}

TEST_F(ShowTest, LaysARecordOutForATerminal) {
  keep(plausible_record());
  const Ran text = show();
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(text.out, R"(matmul m=4096 n=6144 k=4096 dtype=bf16
  on        NVIDIA H200 "é" (h200, sm_90), measured 2026-11-20T10:11:12Z
  policy    l2=cold launch=graph power=sustained
  winner    255.1 us, 82 % of the roofline (208.4 us), bound by arithmetic
            matmul/persistent_wave
            BM=128 BN=256 BK=64 STAGES=4 GROUP=8 CLUSTER=2 PERSIST=1
            PROGRAMMATIC=0 WARPS_M=2 SLICES=1 AHEAD=0 TRANSPOSED=0
               time    spread  slower by  differs from the winner in
  winner   255.1 us  500.0 ns
  default  300.0 us  500.0 ns       18 %  matmul/tiled BM=64 BN=256 BK=64
                                          STAGES=2 GROUP=8 CLUSTER=2 PERSIST=1
                                          PROGRAMMATIC=0 WARPS_M=2 SLICES=1
                                          AHEAD=0 TRANSPOSED=0
  2nd      255.0 us  500.0 ns       tied  STAGES=3
  3rd      258.2 us  500.0 ns      1.2 %  BM=64
  4th      262.5 us  500.0 ns      2.9 %  BM=192 STAGES=3
            1 more with --verbose
  verdict   tie, trust B
            B for power_cap: 600 W, 700 W by default
  checked   25165824 elements: 0 beyond the bound, largest error 12 % of it;
            exact on small integers, red zones intact, no stray access, 50 runs
            with equal bits
  launches  best by graph
  path       host  back to back
  stream  3.25 us      256.1 us
  graph   1.50 us      255.4 us
  search    412 candidates, 96 measured, stopped by budget; what was not tried
            may be 2.0 % faster
  made with nvrtc 13.0, driver 580.65.06, kernwright 0.1.0
  match     seed (template_changed)
)");
  expect_width(text.out, 80);
}

TEST_F(ShowTest, FollowsTheWidthOfTheTerminal) {
  keep(LaunchTimes{});
  const auto widest = [&](unsigned short columns) {
    const Ran ran = on_terminal(
        {"show", "matmul", "m=4096", "n=6144", "k=4096", "dtype=bf16", "--sku", "h200"}, columns);
    EXPECT_EQ(ran.exit_code, 0) << ran.out;
    std::size_t most = 0;
    for (std::string_view line : split(ran.out, '\n')) {
      if (line.ends_with('\r')) line.remove_suffix(1);
      most = std::max(most, line.size());
    }
    return most;
  };
  EXPECT_LE(widest(60), 60U);
  EXPECT_GT(widest(120), 80U);
  EXPECT_LE(widest(120), 120U);
}

TEST_F(ShowTest, VerboseLeavesNothingOut) {
  keep(LaunchTimes{});
  const Ran text = show({"--verbose"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("nvrtc 13.0 abcd"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("matmul/persistent_wave STAGES=4 BM=128 GROUP=-8\n"), std::string::npos)
      << text.out;
}

TEST_F(ShowTest, SaysWhereLaunchPathsWereNotMeasured) {
  keep(LaunchTimes{});
  const Ran text = show();
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("  launches  paths not measured\n"), std::string::npos) << text.out;
  const nlohmann::json shown = show({"--json"}).json();
  EXPECT_TRUE(shown["best_path"].is_null());
  EXPECT_TRUE(shown["launch_paths"].empty());
}

}  // namespace
}  // namespace kernwright
