#include <gmock/gmock.h>
#include <string>
#include <vector>

#include "cache/stores/record_store.h"
#include "model/result/counters.h"
#include "tests/cache/samples.h"
#include "tests/cli/run_program.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// A cache with one measured record of a vector sum, and counters of its winner.
class ProfileTest : public ProgramTest {
 protected:
  struct Shares {
    double memory = 81.5;
    double hits = 33.3;
    double written = 8.4e6;
  };

  void put(const Shares& shares) {
    TuningRecord record = sample_record(1);
    record.key.problem = "vector_add n=4194304 dtype=bf16";
    record.winner.choice = {"vector_add/vectorized", Configuration({{"THREADS", 128},
                                                                    {"VECTORS", 1},
                                                                    {"NO_ALLOCATE", 0},
                                                                    {"STREAMING", 0},
                                                                    {"BLOCKS_PER_SM", 0},
                                                                    {"PROGRAMMATIC", 1}})};
    record.winner.measurement = {.samples_us = {7.2, 7.3, 7.25}, .sm_mhz = {}};
    record.winner.in_blocks = false;
    record.winner.launch_gap_us = 0.5;
    record.runners_up.clear();
    record.baseline.reset();
    record.roofline_us = 5.24;
    CounterSet set;
    set.choice = record.winner.choice;
    set.version = "13.0";
    set.kernels = {{"vector_add_vectorized",
                    {4096, 1, 1},
                    {judged(kTimeCounter, 7500),
                     judged(kDramShareCounter, shares.memory),
                     judged(kDramReadCounter, 16.8e6),
                     judged(kDramWriteCounter, shares.written),
                     judged(kIssueCounter, 12.5),
                     judged(kL2HitCounter, shares.hits),
                     {std::string(kOccupancyCounter), std::nullopt, "not counted"}}}};
    record.counters = {set};
    const auto kept = RecordStore(cache()).put(record);
    ASSERT_TRUE(kept) << kept.error().message;
  }
  Ran of(const std::string& command, const std::vector<std::string>& options = {}) {
    std::vector<std::string> words{command,      "vector_add", "n=4194304",
                                   "dtype=bf16", "--sku",      "h200"};
    words.insert(words.end(), options.begin(), options.end());
    return kernwright(words);
  }
};

TEST_F(ProfileTest, WhatWasCountedIsShownInATable) {
  put({});
  const Ran ran = of("show", {"--verbose"});
  EXPECT_THAT(
      ran.out,
      HasSubstr("  counters  by CUPTI 13.0, of one launch alone\n"
                "                  time  memory    bytes  L2 hits  tensor  warps  issue\n"
                "  winner cold  7.50 us    82 %  25.2 MB     33 %       -      -   12 %\n"
                "            winner cold: 25.2 MB moved, 1.00 times what the operation has to\n"
                "            by the counters too it is bound by memory\n"
                "            room: 1.23 times as fast at most; memory is busy for 82 %\n"));
}

TEST_F(ProfileTest, ShowSaysInAFewLinesWhatTheyMean) {
  put({});
  const Ran shown = of("show");
  expect_width(shown.out, 80);
  EXPECT_THAT(
      shown.out,
      HasSubstr("  counters  memory 82 %, issue slots 12 %, L2 hits 33 %\n"
                "            winner cold: 25.2 MB moved, 1.00 times what the operation has to\n"
                "            by the counters too it is bound by memory\n"
                "            room: 1.23 times as fast at most; memory is busy for 82 %\n"
                "  next "));
  EXPECT_THAT(shown.out, Not(HasSubstr("by CUPTI")));
}

TEST_F(ProfileTest, AValueThatCannotBeBelievedIsMarkedInTheTableAndNotInTheSummary) {
  put({.hits = 103.9});
  const Ran all = of("show", {"--verbose"});
  EXPECT_THAT(all.out, HasSubstr(" 104 % ! "));
  EXPECT_THAT(flat(all.out), HasSubstr("lts__t_sector_hit_rate.pct: 103.9 is not in 0 to 100"));
  EXPECT_THAT(of("show").out, HasSubstr("  counters  memory 82 %, issue slots 12 %\n"));
}

TEST_F(ProfileTest, TheJsonHasUnitsMeaningsAndReasons) {
  put({.hits = 103.9});
  const nlohmann::json set = of("show", {"--json"}).json()["counters"][0];
  EXPECT_EQ(set["source"], "cupti");
  EXPECT_EQ(set["cache"], "cold");
  EXPECT_EQ(set["role"], "winner");
  EXPECT_EQ(set["mode"], "kernel_replay");
  EXPECT_EQ(set["time_us"], 7.5);
  EXPECT_EQ(set["busy"], "memory");
  EXPECT_EQ(set["disagreement"], "");
  const nlohmann::json& values = set["kernels"][0]["values"];
  const nlohmann::json& hits = values["lts__t_sector_hit_rate.pct"];
  EXPECT_EQ(hits["value"], 103.9);
  EXPECT_EQ(hits["unit"], "%");
  EXPECT_FALSE(hits["meaning"].get<std::string>().empty());
  EXPECT_THAT(hits["reason"].get<std::string>(), HasSubstr("not in 0 to 100"));
  EXPECT_TRUE(values["sm__warps_active.avg.pct_of_peak_sustained_active"]["value"].is_null());
}

TEST_F(ProfileTest, CountersThatContradictTheModelAreReported) {
  put({.memory = 41.5});
  const Ran ran = of("show", {"--verbose"});
  EXPECT_THAT(flat(ran.out), HasSubstr("the model says memory, the counters neither: memory is "
                                       "busy for 42 %, issue slots for 12 %"));
  EXPECT_THAT(ran.out, Not(HasSubstr("room:"))) << "neither memory nor arithmetic bounds it";
}

TEST_F(ProfileTest, FewerBytesThanItHasToMoveAreExplained) {
  put({});
  EXPECT_THAT(of("show").out, Not(HasSubstr("moves later")));
  put({.written = 0.4e6});
  EXPECT_THAT(
      of("show").out,
      HasSubstr("17.2 MB moved, 0.68 times what the operation has to\n"
                "            what it wrote and left in the L2 moves later, and is not counted\n"));
}

TEST_F(ProfileTest, UnderNcuItRefusesInsteadOfWaitingForever) {
  environment_["NV_COMPUTE_PROFILER_PERFWORKS_DIR"] = "/opt/ncu";
  const Ran ran = of("profile");
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(flat(ran.err),
              HasSubstr("profile runs under Nsight Compute (NV_COMPUTE_PROFILER_PERFWORKS_DIR is "
                        "set), and two profilers cannot count at once"));
}

TEST_F(ProfileTest, WithoutAGpuItSaysSo) {
  const Ran ran = of("profile");
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.err, HasSubstr("profiling counts on a GPU"));
}

TEST_F(ProfileTest, FewerThanNoCandidatesAreRefused) {
  EXPECT_EQ(of("profile", {"--candidates", "-1"}).exit_code, 2);
}

}  // namespace
}  // namespace kernwright
