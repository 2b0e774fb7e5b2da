#include "service/tune/ncu_csv.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

namespace kernwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// What ncu prints with --csv --page raw, with the program's own lines between.
constexpr const char* kCsv =
    "==PROF== Connected to process 4711 (/usr/bin/python3.12)\n"
    "loading weights\n"
    "==PROF== Profiling \"tiled\" - 0: 0%....50%....100% - 2 passes\n"
    "==PROF== Disconnected from process 4711\n"
    "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\","
    "\"Block Size\",\"Grid Size\",\"Device\",\"CC\",\"dram__bytes_read.sum\","
    "\"gpu__time_duration.sum\",\"lts__t_sector_hit_rate.pct\",\"profiler__replayer_passes\"\n"
    "\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"Mbyte\",\"us\",\"%\",\"\"\n"
    "\"0\",\"4711\",\"python3.12\",\"127.0.0.1\",\"void ns::tiled<(int)2>(float *, int)\",\"1\","
    "\"7\",\"(128, 1, 1)\",\"(132, 2, 1)\",\"0\",\"9.0\",\"268.50\",\"1,234.56\",\"103.90\",\"2\"\n"
    "\"1\",\"4711\",\"python3.12\",\"127.0.0.1\",\"reduce(const float *)\",\"1\",\"7\","
    "\"(32, 1, 1)\",\"(1, 1, 1)\",\"0\",\"9.0\",\"0.25\",\"5.2\",\"n/a\",\"2\"\n";

Candidate candidate(std::vector<LaunchPlan> launches) {
  static const KernelTemplate kTemplate = [] {
    KernelTemplate made;
    made.name = "matmul/tiled";
    return made;
  }();
  Candidate made;
  made.kernel_template = &kTemplate;
  made.plan.launches = std::move(launches);
  return made;
}
LaunchPlan launch(const std::string& kernel, Extent3 grid, Extent3 block) {
  LaunchPlan plan;
  plan.kernel = kernel;
  plan.grid = grid;
  plan.block = block;
  return plan;
}

TEST(NcuCsvTest, ReadsKernelsInBaseUnits) {
  const auto kernels = parse_ncu_csv(kCsv);
  ASSERT_TRUE(kernels) << kernels.error().message;
  ASSERT_EQ(kernels->size(), 2U);
  const NcuKernel& tiled = kernels->front();
  EXPECT_EQ(tiled.counted.name, "tiled");
  EXPECT_EQ(tiled.counted.grid, (Extent3{132, 2, 1}));
  EXPECT_EQ(tiled.passes, 2);
  EXPECT_EQ(tiled.counted.value(kDramReadCounter), 268.5e6);
  EXPECT_DOUBLE_EQ(*tiled.counted.value(kTimeCounter), 1234560);
  EXPECT_EQ(tiled.counted.value(kL2HitCounter), 103.9);
  EXPECT_EQ(tiled.counted.values.size(), counters().size());
  EXPECT_EQ(kernels->back().counted.value(kL2HitCounter), std::nullopt);
}

TEST(NcuCsvTest, SaysWhyAValueIsMissingOrMarked) {
  const auto kernels = parse_ncu_csv(kCsv);
  ASSERT_TRUE(kernels) << kernels.error().message;
  const auto reason = [](const NcuKernel& kernel, std::string_view name) {
    return std::ranges::find(kernel.counted.values, name, &CounterValue::name)->reason;
  };
  EXPECT_THAT(reason(kernels->front(), kL2HitCounter), HasSubstr("103.9 is not in 0 to 100"));
  EXPECT_EQ(reason(kernels->back(), kL2HitCounter), "ncu says \"n/a\"");
  EXPECT_EQ(reason(kernels->front(), kDramShareCounter), "not in the file of ncu");
}

TEST(NcuCsvTest, AKernelIsFoundByNameGridAndBlockAndUsedOnce) {
  NcuKernels kernels(*parse_ncu_csv(kCsv));
  const auto tiled = launch("tiled", {132, 2, 1}, {128, 1, 1});
  const std::size_t grid = kernels.expect(candidate({launch("tiled", {132, 1, 1}, {128, 1, 1})}));
  const std::size_t block = kernels.expect(candidate({launch("tiled", {132, 2, 1}, {256, 1, 1})}));
  const std::size_t both =
      kernels.expect(candidate({tiled, launch("reduce", {1, 1, 1}, {32, 1, 1})}));
  EXPECT_THAT(kernels.take(grid).error().message,
              HasSubstr("no kernel tiled with grid (132, 1, 1) and block (128, 1, 1) is left"));
  EXPECT_EQ(kernels.take(block).error().code, ErrorCode::not_found);
  EXPECT_EQ(kernels.unused(), 2U);
  const auto taken = kernels.take(both);
  ASSERT_TRUE(taken) << taken.error().message;
  EXPECT_EQ(taken->source, CounterSource::ncu);
  EXPECT_EQ(taken->cache, L2State::cold);
  EXPECT_EQ(taken->kernels.size(), 2U);
  EXPECT_DOUBLE_EQ(*taken->time_us(), 1239.76);
  EXPECT_EQ(kernels.unused(), 0U);
}

/// A file in which the kernel "tiled" stands once with each of these times.
std::vector<NcuKernel> launches_of(const std::vector<double>& times) {
  std::vector<NcuKernel> kernels;
  for (const double us : times) {
    NcuKernel kernel = parse_ncu_csv(kCsv)->front();
    for (CounterValue& value : kernel.counted.values) {
      if (value.name == kTimeCounter) value.value = us * 1000;
    }
    kernels.push_back(kernel);
  }
  return kernels;
}

TEST(NcuCsvTest, LaunchesThatAreAlikeAreTakenInOrderIfTheyAreAsManyAsExpected) {
  const Candidate tiled = candidate({launch("tiled", {132, 2, 1}, {128, 1, 1})});
  NcuKernels kernels(launches_of({1, 2}));
  const std::size_t first = kernels.expect(tiled);
  const std::size_t second = kernels.expect(tiled);
  EXPECT_EQ(kernels.take(second)->time_us(), 2);
  EXPECT_EQ(kernels.take(first)->time_us(), 1);
  for (const std::vector<double>& times : {std::vector<double>{1, 2, 3}, std::vector<double>{1}}) {
    NcuKernels unequal(launches_of(times));
    const std::size_t winner = unequal.expect(tiled);
    unequal.expect(tiled);
    const auto taken = unequal.take(winner);
    ASSERT_FALSE(taken) << times.size();
    EXPECT_EQ(taken.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(taken.error().message,
                HasSubstr(times.size() == 3 ? "3 times, and candidates launch it 2 times"
                                            : "1 time, and candidates launch it 2 times"));
  }
}

TEST(NcuCsvTest, ACandidateThatIsAloneMayBeLaunchedAgain) {
  NcuKernels kernels(launches_of({1, 2, 3}));
  const std::size_t alone = kernels.expect(candidate({launch("tiled", {132, 2, 1}, {128, 1, 1})}));
  kernels.expect(candidate({launch("tiled", {132, 2, 1}, {256, 1, 1})}));
  EXPECT_EQ(kernels.take(alone)->time_us(), 1);
  EXPECT_EQ(kernels.unused(), 2U);
}

TEST(NcuCsvTest, WithoutBlocksInTheFileLaunchesOfSeveralBlocksAreAlike) {
  std::vector<NcuKernel> read = launches_of({1, 2, 3});
  for (NcuKernel& kernel : read) kernel.block.reset();
  NcuKernels kernels(std::move(read));
  const std::size_t one = kernels.expect(candidate({launch("tiled", {132, 2, 1}, {128, 1, 1})}));
  kernels.expect(candidate({launch("tiled", {132, 2, 1}, {256, 1, 1})}));
  EXPECT_THAT(kernels.take(one).error().message,
              HasSubstr("3 times, and candidates launch it 2 times"));
}

TEST(NcuCsvTest, WhatIsNoSuchFileIsRefusedWithItsLine) {
  const auto said = [](const std::string& text) {
    const auto kernels = parse_ncu_csv(text);
    return kernels ? "no error" : kernels.error().message;
  };
  EXPECT_THAT(said(""), HasSubstr("it has no kernels"));
  EXPECT_THAT(said("==PROF== nothing\n\"0\",\"1\"\n"), HasSubstr("line 2: no line of names"));
  EXPECT_THAT(said("\"ID\",\"Metric\"\n"), HasSubstr("no column \"Kernel Name\""));
  EXPECT_THAT(said("\"ID\",\"Kernel Name\",\"Grid Size\",\"Section Name\",\"Metric Name\"\n"),
              HasSubstr("line 1: this is the page \"details\""));
  EXPECT_THAT(said("\"ID\",\"Kernel Name\",\"Grid Size\",\"sm__cycles_elapsed.max\"\n"),
              HasSubstr("line 1: it has none of the counters that are read, such as "
                        "gpu__time_duration.sum"));
  const std::string names = "\"ID\",\"Kernel Name\",\"Grid Size\",\"gpu__time_duration.sum\"\n";
  const std::string units = "\"\",\"\",\"\",\"ns\"\n";
  EXPECT_THAT(said(names), HasSubstr("it has no kernels"));
  EXPECT_THAT(said(names + "\"0\",\"k\",\"(1, 1, 1)\",\"5\"\n"), HasSubstr("units is missing"));
  EXPECT_THAT(said(names + units + "\"0\",\"k\"\n"), HasSubstr("line 3: 2 cells, and 4"));
  EXPECT_THAT(said(names + units + "\"0\",\"k\",\"(1, 1, 1)\",\"5\",\n"),
              HasSubstr("line 3: 5 cells, and 4"));
  EXPECT_THAT(said(names + units + "\"0\",\"k\",\"1x1\",\"5\"\n"),
              HasSubstr("line 3: the grid \"1x1\" is none"));
  EXPECT_THAT(said(names + units + "\"0\",\"k\",\"(1, 1, 1)\",\"5,25\"\n" +
                   "\"1\",\"k\",\"(1, 1, 1)\",\"5.25\"\n"),
              HasSubstr("\"5,25\" has a comma before its fraction and \"5.25\" a point"));
}

/// The times in nanoseconds that a file gives with one such cell in a line.
std::vector<std::optional<double>> times(const std::string& unit,
                                         const std::vector<std::string>& cells) {
  std::string text =
      "\"ID\",\"Kernel Name\",\"Grid Size\",\"gpu__time_duration.sum\"\n\"\",\"\",\"\",\"" + unit +
      "\"\n";
  for (const std::string& cell : cells) text += "\"0\",\"k\",\"(1, 1, 1)\",\"" + cell + "\"\n";
  const auto kernels = parse_ncu_csv(text);
  EXPECT_TRUE(kernels) << kernels.error().message;
  std::vector<std::optional<double>> all;
  if (!kernels) return all;
  for (const NcuKernel& kernel : *kernels) all.push_back(kernel.counted.value(kTimeCounter));
  return all;
}

TEST(NcuCsvTest, NumbersAreReadAsTheLocaleOfTheFileHasThem) {
  EXPECT_THAT(times("ns", {"1,234", "1,234,567", "0.5"}), ElementsAre(1234, 1234567, 0.5));
  EXPECT_THAT(times("ns", {"1,234"}), ElementsAre(1234));
  EXPECT_THAT(times("ns", {"1.234", "12,50"}), ElementsAre(1234, 12.5)) << "German";
  EXPECT_THAT(times("ns", {"1.234.567", "5,125"}), ElementsAre(1234567, 5.125)) << "German";
  EXPECT_THAT(times("ns", {"0,125"}), ElementsAre(0.125)) << "German";
  EXPECT_THAT(times("ns", {"1\u202f234,5", "2\u00a0000"}), ElementsAre(1234.5, 2000)) << "French";
  EXPECT_THAT(times("ns", {"1'234.5"}), ElementsAre(1234.5)) << "Swiss";
  EXPECT_THAT(times("usecond", {"1.5"}), ElementsAre(1500));
  EXPECT_THAT(times("ms", {"1.5"}), ElementsAre(1.5e6));
  EXPECT_THAT(times("ns", {"n/a", "", "-", "7"}),
              ElementsAre(std::nullopt, std::nullopt, std::nullopt, 7));
}

TEST(NcuCsvTest, AFileThatASpreadsheetWroteAnewIsRead) {
  const auto kernels = parse_ncu_csv(
      "\ufeffID;Kernel Name;Grid Size;gpu__time_duration.sum;dram__bytes_read.sum\r\n"
      ";;;ns;Gbyte\r\n0;k(int, float);(4, 1, 1);1234,5;2,5\r\n\r\n");
  ASSERT_TRUE(kernels) << kernels.error().message;
  ASSERT_EQ(kernels->size(), 1U);
  EXPECT_EQ(kernels->front().counted.name, "k");
  EXPECT_EQ(kernels->front().counted.grid, (Extent3{4, 1, 1}));
  EXPECT_EQ(kernels->front().counted.value(kTimeCounter), 1234.5);
  EXPECT_EQ(kernels->front().counted.value(kDramReadCounter), 2.5e9);
}

TEST(NcuCsvTest, FilesOneAfterTheOtherMayHaveOtherColumns) {
  const auto kernels = parse_ncu_csv(
      "\"ID\",\"Kernel Name\",\"Grid Size\",\"gpu__time_duration.sum\"\n\"\",\"\",\"\",\"us\"\n"
      "\"0\",\"a\",\"(1, 1, 1)\",\"5\"\n==PROF== Disconnected\n"
      "\"ID\",\"Grid Size\",\"Kernel Name\",\"dram__bytes_read.sum\"\n\"\",\"\",\"\",\"Kbyte\"\n"
      "\"0\",\"(2, 1, 1)\",\"b\",\"6\"\n");
  ASSERT_TRUE(kernels) << kernels.error().message;
  ASSERT_EQ(kernels->size(), 2U);
  EXPECT_EQ(kernels->front().counted.value(kTimeCounter), 5000);
  EXPECT_EQ(kernels->front().counted.value(kDramReadCounter), std::nullopt);
  EXPECT_EQ(kernels->back().counted.name, "b");
  EXPECT_EQ(kernels->back().counted.value(kDramReadCounter), 6000);
}

TEST(NcuCsvTest, WhatSectionsCallByOtherNamesIsFound) {
  const auto kernels = parse_ncu_csv(
      "\"ID\",\"Kernel Name\",\"Grid Size\","
      "\"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed\","
      "\"lts__t_sectors_lookup_hit.sum\",\"lts__t_sectors_lookup_miss.sum\","
      "\"lts__t_sector_hit_rate.pct\"\n"
      "\"\",\"\",\"\",\"%\",\"sector\",\"sector\",\"%\"\n"
      "\"0\",\"k\",\"(1, 1, 1)\",\"81.5\",\"3,000\",\"1,000\",\"103.9\"\n"
      "\"1\",\"k\",\"(1, 1, 1)\",\"81.5\",\"n/a\",\"1,000\",\"61.25\"\n");
  ASSERT_TRUE(kernels) << kernels.error().message;
  EXPECT_EQ(kernels->front().counted.value(kDramShareCounter), 81.5);
  EXPECT_EQ(kernels->front().counted.value(kL2HitCounter), 75);
  EXPECT_EQ(kernels->back().counted.value(kL2HitCounter), 61.25);
}

TEST(NcuCsvTest, AnUnknownUnitIsNotGuessed) {
  const auto kernels = parse_ncu_csv(
      "\"ID\",\"Kernel Name\",\"Grid Size\",\"gpu__time_duration.sum\"\n\"\",\"\",\"\",\"hz\"\n"
      "\"0\",\"k\",\"(1, 1, 1)\",\"5\"\n");
  ASSERT_TRUE(kernels) << kernels.error().message;
  EXPECT_FALSE(kernels->front().counted.value(kTimeCounter));
}

}  // namespace
}  // namespace kernwright
