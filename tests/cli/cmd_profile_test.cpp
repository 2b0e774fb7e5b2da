#include <gmock/gmock.h>
#include <string>
#include <vector>

#include "cache/stores/record_store.h"
#include "tests/cache/samples.h"
#include "tests/cli/run_program.h"

namespace kernwright {
namespace {

/// A cache with one measured record of a vector sum, whose winner has a grid of 4096 blocks.
class ProfileTest : public ProgramTest {
 protected:
  void SetUp() override {
    TuningRecord record = sample_record(1);
    record.key.problem = "vector_add n=4194304 dtype=bf16";
    record.winner.choice = choice(128);
    record.winner.measurement = {.samples_us = {7.2, 7.3, 7.25}, .sm_mhz = {}};
    record.winner.in_blocks = false;
    record.winner.launch_gap_us = 0.5;
    record.runners_up.clear();
    record.baseline.reset();
    record.counters.clear();
    record.roofline_us = 5.24;
    const auto put = RecordStore(cache()).put(record);
    ASSERT_TRUE(put) << put.error().message;
  }
  static Choice choice(int threads) {
    return {"vector_add/vectorized", Configuration({{"THREADS", threads},
                                                    {"VECTORS", 1},
                                                    {"NO_ALLOCATE", 0},
                                                    {"STREAMING", 0},
                                                    {"BLOCKS_PER_SM", 0},
                                                    {"PROGRAMMATIC", 1}})};
  }
  Ran of(const std::string& command, const std::vector<std::string>& options = {}) {
    std::vector<std::string> words{command,      "vector_add", "n=4194304",
                                   "dtype=bf16", "--sku",      "h200"};
    words.insert(words.end(), options.begin(), options.end());
    return kernwright(words);
  }
  Ran import(const std::string& text, std::vector<std::string> options = {}) {
    options.insert(options.begin(), {"--import", write("counted.csv", text).string()});
    return of("profile", options);
  }
  /// What ncu prints of one launch.
  static std::string csv(const std::string& grid, const std::string& memory = "81.5",
                         const std::string& hits = "33.3") {
    return "==PROF== Connected to process 4711 (/opt/program)\n"
           "\"ID\",\"Kernel Name\",\"Grid Size\",\"gpu__time_duration.sum\","
           "\"dram__throughput.avg.pct_of_peak_sustained_elapsed\",\"dram__bytes_read.sum\","
           "\"dram__bytes_write.sum\",\"smsp__issue_active.avg.pct_of_peak_sustained_active\","
           "\"lts__t_sector_hit_rate.pct\"\n"
           "\"\",\"\",\"\",\"us\",\"%\",\"Mbyte\",\"Mbyte\",\"%\",\"%\"\n"
           "\"0\",\"vector_add_vectorized(const T *)\",\"" +
           grid + "\",\"7.50\",\"" + memory + "\",\"16.80\",\"8.40\",\"12.5\",\"" + hits + "\"\n";
  }
};

constexpr const char* kGrid = "(4096, 1, 1)";

TEST_F(ProfileTest, WhatNcuCountedIsKeptAndShown) {
  const Ran imported = import(csv(kGrid));
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  expect_width(imported.out, 80);
  for (const Ran& ran : {imported, of("show", {"--verbose"})}) {
    EXPECT_NE(ran.out.find(
                  "  counters  by Nsight Compute, of one launch alone\n"
                  "                  time  memory    bytes  L2 hits  tensor  warps  issue\n"
                  "  winner cold  7.50 us    82 %  25.2 MB     33 %       -      -   12 %\n"
                  "            winner cold: 25.2 MB moved, 1.00 times what the operation has to\n"
                  "            by the counters too it is bound by memory\n"
                  "            room: 1.23 times as fast at most; memory is busy for 82 %\n"),
              std::string::npos)
        << ran.out;
  }
}

TEST_F(ProfileTest, ShowSaysInAFewLinesWhatTheyMean) {
  ASSERT_EQ(import(csv(kGrid)).exit_code, 0);
  const Ran shown = of("show");
  expect_width(shown.out, 80);
  EXPECT_NE(shown.out.find(
                "  counters  memory 82 %, issue slots 12 %, L2 hits 33 %\n"
                "            winner cold: 25.2 MB moved, 1.00 times what the operation has to\n"
                "            by the counters too it is bound by memory\n"
                "            room: 1.23 times as fast at most; memory is busy for 82 %\n"
                "  next "),
            std::string::npos)
      << shown.out;
  EXPECT_EQ(shown.out.find("by Nsight Compute"), std::string::npos) << shown.out;
}

TEST_F(ProfileTest, AValueThatCannotBeBelievedIsMarkedInTheTableAndNotInTheSummary) {
  const Ran imported = import(csv(kGrid, "81.5", "103.9"));
  EXPECT_NE(imported.out.find(" 104 % ! "), std::string::npos) << imported.out;
  EXPECT_NE(flat(imported.out).find("lts__t_sector_hit_rate.pct: 103.9 is not in 0 to 100"),
            std::string::npos)
      << imported.out;
  const Ran shown = of("show");
  EXPECT_NE(shown.out.find("  counters  memory 82 %, issue slots 12 %\n"), std::string::npos)
      << shown.out;
}

TEST_F(ProfileTest, TheJsonHasUnitsMeaningsAndReasons) {
  const nlohmann::json object = import(csv(kGrid, "81.5", "103.9"), {"--json"}).json();
  const nlohmann::json& set = object["problems"][0]["counters"][0];
  EXPECT_EQ(set["source"], "ncu");
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
  EXPECT_NE(hits["reason"].get<std::string>().find("not in 0 to 100"), std::string::npos);
  EXPECT_TRUE(values["sm__warps_active.avg.pct_of_peak_sustained_active"]["value"].is_null());
  EXPECT_EQ(of("show", {"--json"}).json()["counters"], object["problems"][0]["counters"]);
}

TEST_F(ProfileTest, CountersThatContradictTheModelAreReported) {
  const Ran imported = import(csv(kGrid, "41.5"));
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  EXPECT_NE(flat(imported.out)
                .find("the model says memory, the counters neither: memory is busy "
                      "for 42 %, issue slots for 12 %"),
            std::string::npos)
      << imported.out;
}

TEST_F(ProfileTest, TrustAndVerdictStayWhatTheyWere) {
  const nlohmann::json before = of("show", {"--json"}).json();
  ASSERT_EQ(import(csv(kGrid)).exit_code, 0);
  nlohmann::json after = of("show", {"--json"}).json();
  EXPECT_FALSE(after["counters"].empty());
  after.erase("counters");
  EXPECT_EQ(after, before);
}

TEST_F(ProfileTest, AKernelOfAnotherGridIsNotTaken) {
  const Ran imported = import(csv("(4095, 1, 1)"));
  EXPECT_EQ(imported.exit_code, 1);
  EXPECT_NE(imported.err.find("no kernel vector_add_vectorized with grid (4096, 1, 1) is left"),
            std::string::npos)
      << imported.err;
  EXPECT_NE(imported.err.find("1 of 1 kernel in"), std::string::npos) << imported.err;
  EXPECT_FALSE(of("show", {"--json"}).json().contains("counters"));
}

TEST_F(ProfileTest, ADefaultDoesNotTakeTheKernelOfTheNextProblem) {
  TuningRecord record = sample_record(1);
  record.key.problem = "vector_add n=4194296 dtype=bf16";
  record.winner.choice = choice(256);
  record.baseline = record.winner;
  record.baseline->choice = choice(128);
  record.runners_up.clear();
  record.counters.clear();
  ASSERT_TRUE(RecordStore(cache()).put(record));
  const std::filesystem::path list = write(
      "list.json",
      R"({"problems": ["vector_add n=4194296 dtype=bf16", "vector_add n=4194304 dtype=bf16"]})");
  std::string both = csv("(2048, 1, 1)");
  const std::string other = csv(kGrid);
  both += other.substr(other.find("\"0\""));
  const std::filesystem::path counted = write("counted.csv", both);
  const Ran ran = kernwright(
      {"profile", list.string(), "--sku", "h200", "--import", counted.string(), "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  for (const nlohmann::json& row : ran.json()["problems"]) {
    EXPECT_EQ(row["counted"], 1) << row["problem"];
    EXPECT_EQ(row["counters"][0]["role"], "winner");
  }
}

TEST_F(ProfileTest, ADefaultDoesNotTakeTheSecondLaunchOfTheWinner) {
  // Persistent: the grid is the same whatever the configuration.
  const auto persistent = [](int vectors) {
    return Choice{"vector_add/vectorized", Configuration({{"THREADS", 128},
                                                          {"VECTORS", vectors},
                                                          {"NO_ALLOCATE", 0},
                                                          {"STREAMING", 0},
                                                          {"BLOCKS_PER_SM", 4},
                                                          {"PROGRAMMATIC", 1}})};
  };
  TuningRecord record = sample_record(1);
  record.key.problem = "vector_add n=4194304 dtype=bf16";
  record.created = "2031-01-01T00:00:00Z";
  record.winner.choice = persistent(2);
  record.baseline = record.winner;
  record.baseline->choice = persistent(1);
  record.runners_up.clear();
  record.counters.clear();
  ASSERT_TRUE(RecordStore(cache()).put(record));
  const std::string once = csv("(528, 1, 1)");
  const std::string twice = once + once.substr(once.find("\"0\""));
  const Ran thrice = import(twice + once.substr(once.find("\"0\"")), {"--candidates", "1"});
  EXPECT_EQ(thrice.exit_code, 2);
  EXPECT_THAT(flat(thrice.err), ::testing::HasSubstr("3 times, and candidates launch it 2 times"));
  EXPECT_FALSE(of("show", {"--json"}).json().contains("counters"));
  const Ran both = import(twice, {"--candidates", "1", "--json"});
  ASSERT_EQ(both.exit_code, 0) << both.err;
  EXPECT_EQ(both.json()["problems"][0]["counted"], 2);
  EXPECT_EQ(import(twice, {"--json"}).json()["problems"][0]["counted"], 1)
      << "the winner alone, launched twice";
}

TEST_F(ProfileTest, AWorklistIsImportedInItsOrder) {
  const std::filesystem::path list =
      write("list.json",
            R"({"problems": ["vector_add n=4194304 dtype=bf16", "vector_add n=8 dtype=bf16"]})");
  const std::filesystem::path counted = write("counted.csv", csv(kGrid));
  const Ran ran = kernwright(
      {"profile", list.string(), "--sku", "h200", "--import", counted.string(), "--json"});
  EXPECT_EQ(ran.exit_code, 1) << "the second problem has no record";
  const nlohmann::json rows = ran.json()["problems"];
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0]["counted"], 1);
  EXPECT_NE(rows[1]["error"].get<std::string>().find("tune it first"), std::string::npos);
}

TEST_F(ProfileTest, WhatNeitherMemoryNorArithmeticBoundsHasNoRoomByThem) {
  const Ran imported = import(csv(kGrid, "41.5"));
  EXPECT_EQ(imported.out.find("room:"), std::string::npos) << imported.out;
}

TEST_F(ProfileTest, FewerBytesThanItHasToMoveAreExplained) {
  std::string fewer = csv(kGrid);
  fewer.replace(fewer.find("\"8.40\""), 6, "\"0.40\"");
  const std::string out = import(fewer).out;
  EXPECT_NE(
      out.find("17.2 MB moved, 0.68 times what the operation has to\n"
               "            what it wrote and left in the L2 moves later, and is not counted\n"),
      std::string::npos)
      << out;
  EXPECT_EQ(import(csv(kGrid)).out.find("moves later"), std::string::npos);
}

TEST_F(ProfileTest, AFileOfAGermanLocaleHasTheSameValues) {
  std::string german = csv(kGrid);
  const std::size_t values = german.rfind("\"0\"");
  for (std::size_t i = values; i < german.size(); ++i) {
    if (german[i] == '.') german[i] = ',';
  }
  ASSERT_NE(german, csv(kGrid));
  const nlohmann::json set = import(german, {"--json"}).json()["problems"][0]["counters"][0];
  EXPECT_EQ(set["time_us"], 7.5);
  EXPECT_EQ(set["measured_bytes"], 25.2e6);
}

TEST_F(ProfileTest, UnderNcuItRefusesInsteadOfWaitingForever) {
  environment_["NV_COMPUTE_PROFILER_PERFWORKS_DIR"] = "/opt/ncu";
  const Ran ran = of("profile");
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_NE(
      flat(ran.err).find("profile runs under Nsight Compute (NV_COMPUTE_PROFILER_PERFWORKS_DIR is "
                         "set), and two profilers cannot count at once"),
      std::string::npos)
      << ran.err;
  EXPECT_EQ(import(csv(kGrid)).exit_code, 0);
}

TEST_F(ProfileTest, WithoutAGpuItSaysWhatCanBeDone) {
  const Ran ran = of("profile");
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_NE(ran.err.find("counters can only be imported"), std::string::npos) << ran.err;
}

TEST_F(ProfileTest, WhatIsNoFileOfNcuIsRefused) {
  const Ran ran = import("no csv\n");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_NE(ran.err.find("counted.csv: line"), std::string::npos) << ran.err;
  EXPECT_EQ(of("profile", {"--candidates", "-1"}).exit_code, 2);
}

}  // namespace
}  // namespace kernwright
