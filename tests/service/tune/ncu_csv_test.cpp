#include "service/tune/ncu_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

namespace kernwright {
namespace {

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
LaunchPlan launch(const std::string& kernel, Extent3 grid) {
  LaunchPlan plan;
  plan.kernel = kernel;
  plan.grid = grid;
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

TEST(NcuCsvTest, AKernelIsFoundByNameAndGridAndUsedOnce) {
  auto kernels = *parse_ncu_csv(kCsv);
  EXPECT_THAT(take_from_ncu(kernels, candidate({launch("tiled", {132, 1, 1})})).error().message,
              HasSubstr("no kernel tiled with grid (132, 1, 1) is left"));
  EXPECT_FALSE(take_from_ncu(
      kernels, candidate({launch("tiled", {132, 2, 1}), launch("other", {1, 1, 1})})));
  const auto taken = take_from_ncu(
      kernels, candidate({launch("tiled", {132, 2, 1}), launch("reduce", {1, 1, 1})}));
  ASSERT_TRUE(taken) << taken.error().message;
  EXPECT_EQ(taken->source, CounterSource::ncu);
  EXPECT_EQ(taken->cache, L2State::cold);
  EXPECT_EQ(taken->kernels.size(), 2U);
  EXPECT_DOUBLE_EQ(*taken->time_us(), 1239.76);
  EXPECT_FALSE(take_from_ncu(kernels, candidate({launch("tiled", {132, 2, 1})})));
}

TEST(NcuCsvTest, WhatIsNoSuchFileIsRefusedWithItsLine) {
  const auto said = [](const std::string& text) {
    const auto kernels = parse_ncu_csv(text);
    return kernels ? "no error" : kernels.error().message;
  };
  EXPECT_THAT(said(""), HasSubstr("it has no kernels"));
  EXPECT_THAT(said("==PROF== nothing\n\"0\",\"1\"\n"), HasSubstr("line 2: no line of names"));
  EXPECT_THAT(said("\"ID\",\"Metric Name\"\n"), HasSubstr("no column \"Kernel Name\""));
  const std::string names = "\"ID\",\"Kernel Name\",\"Grid Size\"\n";
  EXPECT_THAT(said(names + "\"0\",\"k\",\"(1, 1, 1)\"\n"), HasSubstr("units is missing"));
  EXPECT_THAT(said(names + "\"\",\"\",\"\"\n\"0\",\"k\"\n"), HasSubstr("line 3: 2 cells, and 3"));
  EXPECT_THAT(said(names + "\"\",\"\",\"\"\n\"0\",\"k\",\"1x1\"\n"),
              HasSubstr("line 3: the grid \"1x1\" is none"));
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
