#include "compile/ptxas_log.h"

#include <gtest/gtest.h>

namespace kernwright {
namespace {

TEST(PtxasLogTest, ReadsTheResourcesOfEveryEntry) {
  const PtxasReport report = parse_ptxas_log(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'direct' for 'sm_90a'\n"
      "ptxas info    : Function properties for direct\n"
      "ptxas         .     520 bytes stack frame, 640 bytes spill stores, 700 bytes spill loads\n"
      "ptxas info    : Used 24 registers, used 1 barriers, 528 bytes cumulative stack size, 128 "
      "bytes smem, 400 bytes cmem[0]\n"
      "ptxas info    : Compile time = 18.473 ms\n"
      "ptxas info    : Compiling entry function 'plain' for 'sm_90a'\n"
      "ptxas info    : Function properties for plain\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 12 barriers\n");
  ASSERT_EQ(report.entries.size(), 2U);
  EXPECT_EQ(report.entries[0].name, "direct");
  EXPECT_EQ(report.entries[0].resources, (Resources{.registers = 24,
                                                    .spill_store_bytes = 640,
                                                    .spill_load_bytes = 700,
                                                    .stack_bytes = 528,
                                                    .static_smem_bytes = 128,
                                                    .barriers = 1}));
  EXPECT_EQ(report.entries[1].name, "plain");
  EXPECT_EQ(report.entries[1].resources, (Resources{.registers = 168, .barriers = 12}));
  EXPECT_TRUE(report.warnings.empty());
}

TEST(PtxasLogTest, SpillsOfACalledFunctionCountForTheEntry) {
  const PtxasReport report = parse_ptxas_log(
      "ptxas info    : Compiling entry function 'caller' for 'sm_90a'\n"
      "ptxas info    : Function properties for caller\n"
      "ptxas         .     552 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 24 registers, used 1 barriers, 552 bytes cumulative stack size\n"
      "ptxas info    : Function properties for _Z4deepPKfi\n"
      "ptxas         .     16 bytes stack frame, 660 bytes spill stores, 720 bytes spill loads\n");
  ASSERT_EQ(report.entries.size(), 1U);
  EXPECT_EQ(report.entries[0].resources.spill_bytes(), 1380);
  EXPECT_EQ(report.entries[0].resources.stack_bytes, 552);
  EXPECT_EQ(report.warnings, (std::vector<std::string>{"_Z4deepPKfi is called, not inlined"}));
}

TEST(PtxasLogTest, KeepsTheLinesThatSaySpeedIsLostAndNoOthers) {
  const PtxasReport report = parse_ptxas_log(
      "ptxas info    : (C7519) warpgroup.arrive is injected in around line 105 by compiler\n"
      "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable\n"
      "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async serialized\n"
      "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable\n");
  EXPECT_EQ(
      report.warnings,
      (std::vector<std::string>{"(C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable",
                                "(C7510) Potential Performance Loss: wgmma.mma_async serialized"}));
}

TEST(PtxasLogTest, AnEmptyLogHasNoEntries) {
  EXPECT_TRUE(parse_ptxas_log("").entries.empty());
  EXPECT_TRUE(parse_ptxas_log("Used 4 registers\nFunction properties for\n").entries.empty());
}

TEST(PtxasLogTest, ErrorsBehindTheZeroOfALogAreKept) {
  const std::string log = joined_log(
      std::string("ptxas info    : Used 10 registers\n\0ptxas error   : too much\n\0\0", 62));
  EXPECT_EQ(log, "ptxas info    : Used 10 registers\nptxas error   : too much\n");
  EXPECT_EQ(without_infos(log), "ptxas error   : too much");
  EXPECT_EQ(without_infos("ptxas info    : Used 10 registers\n"),
            "ptxas info    : Used 10 registers");
  EXPECT_EQ(joined_log("one\ntwo"), "one\ntwo");
}

}  // namespace
}  // namespace kernwright
