#include <algorithm>
#include <regex>

#include "cache/stores/record_store.h"
#include "support/text.h"
#include "tests/cache/samples.h"
#include "tests/cli/run_program.h"
#include "tests/results.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

/// A cache with one measured record of the sample's problem.
class ShowTest : public ProgramTest {
 protected:
  void keep(const LaunchTimes& paths) {
    TuningRecord record = sample_record(4096);
    record.launch_paths = paths;
    keep(record);
  }
  void keep(const TuningRecord& record) { must(RecordStore(cache()).put(record)); }
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
  const Ran text = show({"--verbose"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("  launches  best by graph: the shortest back to back\n"
                                  "  path       host  back to back\n"
                                  "  stream  3.25 us       12.5 us\n"
                                  "  graph   1.50 us       11.5 us\n"));
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
    RankedConfiguration made;
    made.choice.kernel_template = "matmul/persistent_wave";
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
    for (int round = 0; round < 40; ++round) {
      made.measurement.samples_us.push_back(us +
                                            0.5 * ((round + static_cast<int>(stages)) % 3 - 1));
    }
    made.slowdown = {slowdown, slowdown - 0.001, slowdown + 0.001};
    made.tied = false;
    return made;
  };
  record.winner = ranked(128, 4, 255.1, 0);
  record.runners_up = {ranked(128, 3, 255.0, -0.0004), ranked(64, 4, 258.25, 0.0124),
                       ranked(192, 3, 262.5, 0.029), ranked(64, 3, 280, 0.1)};
  record.runners_up[0].tied = true;
  record.runners_up[1].traits.is_predicted = true;
  record.baseline = ranked(64, 2, 300, 0.162);
  record.baseline->choice.kernel_template = "matmul/tiled";
  record.rounds = {};
  record.rounds.sm_probe_us.assign(40, 1);
  record.launch_paths = {{{KernelPath::stream, 3.25, 256.1}, {KernelPath::graph, 1.5, 255.4}},
                         KernelPath::graph};
  return record;
}

TEST_F(ShowTest, LaysARecordOutForATerminal) {
  keep(plausible_record());
  const Ran text = show();
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(text.out, R"(matmul m=4096 n=6144 k=4096 dtype=bf16
  winner    255.1 us, 82 % of the roofline, which compute sets
            matmul/persistent_wave BM=128 BN=256 BK=64 STAGES=4 GROUP=8
            CLUSTER=2 PERSIST=1 PROGRAMMATIC=0 WARPS_M=2 SLICES=1 AHEAD=0
            TRANSPOSED=0
  speed-up  1.18 times as fast as the default (1.17 to 1.18)
            1.01 times as fast as the cost model's first choice (1.01 to 1.01)
  sure      tie: 1 other of the finals is as fast, a fixed rule chose; trust B
            B for power_cap: 600 W, 700 W by default
  search    96 of 412 candidates in 62 s, stopped by budget; untried ones may be
            2.0 % faster
  next      restore the default power limit: nvidia-smi --power-limit, and tune
            again
  made      on NVIDIA H200 "é", 2026-11-20T10:11:12Z
  match     seed (template_changed); tune again to renew it
)");
  expect_width(text.out, 80);
}

TEST_F(ShowTest, SaysInWordsHowSureTheWinnerIs) {
  TuningRecord record = plausible_record();
  record.trust = Trust::a;
  record.audit.rows.clear();
  record.search.regret_estimate = 0;
  record.verdict = Verdict::win;
  keep(record);
  EXPECT_THAT(show().out,
              HasSubstr("  sure      win: 4 others of the finals are slower; trust A\n"));
  EXPECT_THAT(show().out, HasSubstr("  next      nothing: more tuning is not expected to help\n"));

  record.verdict = Verdict::unresolved;
  record.created = "2026-11-21T10:11:12Z";
  keep(record);
  EXPECT_THAT(flat(show().out),
              HasSubstr("sure unresolved: 1 other of the finals is not told apart"));
  EXPECT_THAT(show().out, HasSubstr("  next      tune with more --seconds\n"));
}

TEST_F(ShowTest, NeverCallsAWinnerSlower) {
  TuningRecord record = plausible_record();
  record.winner.traits.is_default = true;
  record.baseline = record.winner;
  for (double& us : record.runners_up[1].measurement.samples_us) us = 254.9;
  keep(record);
  const Ran text = show();
  EXPECT_THAT(text.out, HasSubstr("the winner is the default: nothing beat it"));
  EXPECT_THAT(flat(text.out), HasSubstr("level with the cost model's first choice (")) << text.out;
  EXPECT_FALSE(std::regex_search(text.out + show({"--verbose"}).out, std::regex(" -[0-9]")))
      << text.out;
}

TEST_F(ShowTest, WritesARecordAsAPageToo) {
  keep(sample_record(4096));
  const std::string file = (dir_ / "page.html").string();
  const Ran ran = show({"--html", file});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, show().out);
  EXPECT_THAT(content(file), HasSubstr("matmul m=4096 n=6144 k=4096 dtype=bf16"));
  EXPECT_EQ(show({"--html", "/proc/none/page.html"}).exit_code, 1);
}

TEST_F(ShowTest, WritesTheRaceAsAPicture) {
  TuningRecord record = plausible_record();
  keep(record);
  const std::filesystem::path file = dir_ / "race.svg";
  const Ran ran = show({"--svg", file.string()});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(content(file).find("<svg xmlns="), 0U);
  EXPECT_EQ(show({"--svg", "/proc/none/race.svg"}).exit_code, 1);
  record.runners_up.clear();
  record.baseline.reset();
  record.created = "2027-01-01T00:00:00Z";
  keep(record);
  const Ran none = show({"--svg", file.string()});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, HasSubstr("there is no race: the record has one finalist"));
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
  EXPECT_THAT(text.out, HasSubstr("nvrtc 13.0 abcd"));
  EXPECT_THAT(text.out, HasSubstr("matmul/persistent_wave STAGES=4 BM=128 GROUP=-8\n"));
}

TEST_F(ShowTest, SaysWhereLaunchPathsWereNotMeasured) {
  keep(LaunchTimes{});
  const Ran text = show({"--verbose"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("  launches  paths not measured\n"));
  const nlohmann::json shown = show({"--json"}).json();
  EXPECT_TRUE(shown["best_path"].is_null());
  EXPECT_TRUE(shown["launch_paths"].empty());
}

}  // namespace
}  // namespace kernwright
