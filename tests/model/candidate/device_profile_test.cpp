#include "model/candidate/device_profile.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/files/embedded_files.h"
#include "tests/results.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

/// A live device as the driver describes it.
DeviceProfile live(std::string name, int sm_arch, std::int64_t sm_count,
                   std::int64_t memory_bytes) {
  DeviceProfile measured;
  measured.name = std::move(name);
  measured.sm_arch = sm_arch;
  measured.sm_count = sm_count;
  measured.memory_bytes = memory_bytes;
  return measured;
}

TEST(DeviceProfileTest, EveryEmbeddedFileParsesAndIsNamedByItsId) {
  for (const EmbeddedFile& file : embedded_profiles()) {
    const DeviceProfile profile = must(parse_profile(file.content, file.path));
    EXPECT_EQ(profile.id + ".json", file.path);
  }
  EXPECT_EQ(built_in_profiles().size(), embedded_profiles().size());
}

TEST(DeviceProfileTest, AllSkusAreThere) {
  for (const char* id : {"h200", "h100_sxm", "h100_pcie", "a100_40", "a100_80", "a10g", "l40s",
                         "rtx_3090", "rtx_4090", "b200"}) {
    EXPECT_TRUE(find_profile(id)) << id;
  }
  EXPECT_THAT(find_profile("h300"), Fails(ErrorCode::not_found, HasSubstr("rtx_4090")));
}

TEST(DeviceProfileTest, ASkuIsFoundByWhatItIsCalled) {
  for (const char* name : {"H200", "h-200", "NVIDIA H200"}) {
    const Result<DeviceProfile> found = find_profile(name);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(found->id, "h200");
  }
  EXPECT_EQ(find_profile("h100")->id, "h100_sxm");
  EXPECT_EQ(find_profile("NVIDIA H100 PCIe")->id, "h100_pcie");
  EXPECT_EQ(find_profile("RTX 4090")->id, "rtx_4090");
  EXPECT_THAT(find_profile("a100").error().message, HasSubstr("did you mean a100_40 or a100_80?"));
}

TEST(DeviceProfileTest, FiguresAgreeWithEachOther) {
  for (const DeviceProfile& profile : built_in_profiles()) {
    // FP32 rate: 2 flops for each of 64 (A100) or 128 lanes of every SM at boost.
    const double lanes = profile.sm_arch == 80 ? 64 : 128;
    const double tflops =
        2 * lanes * static_cast<double>(profile.sm_count) * profile.sm_clock_mhz * 1e-6;
    EXPECT_NEAR(profile.fp32_tflops / tflops, 1, 0.02) << profile.id;
    EXPECT_EQ(profile.smem_per_sm - profile.smem_per_block_optin, 1024) << profile.id;
  }
}

TEST(DeviceProfileTest, H200IsTheMachineOfTheAnchors) {
  const DeviceProfile h200 = must(find_profile("h200"));
  EXPECT_EQ(h200.sm_count, 132);
  EXPECT_EQ(h200.smem_per_block_optin, 232448);
  EXPECT_EQ(h200.smem_per_sm, 233472);
  EXPECT_EQ(h200.l2_bytes, 62914560);
  EXPECT_DOUBLE_EQ(h200.dram_gbps, 4800);
}

TEST(DeviceProfileTest, ScopeGetsTheFieldsOfTheLanguage) {
  Scope scope;
  find_profile("h200")->add_to(scope);
  EXPECT_EQ(scope.find("sm_arch"), 90);
  EXPECT_EQ(scope.find("smem_per_block_optin"), 232448);
  EXPECT_EQ(scope.find("sms_for_fours"), 120);
  EXPECT_EQ(scope.find("sms_for_eights"), 112);
  ASSERT_EQ(scope.size(), device_field_names().size());
  for (std::size_t i = 0; i < device_field_names().size(); ++i) {
    EXPECT_EQ(scope.name(i), device_field_names()[i]);
  }
}

TEST(DeviceProfileTest, ClustersFindNoPlaceOnAllMultiprocessors) {
  const DeviceProfile h200 = *find_profile("h200");
  EXPECT_EQ(h200.sms_for_clusters(1), 132);
  EXPECT_EQ(h200.sms_for_clusters(2), 132);
  EXPECT_EQ(h200.sms_for_clusters(4), 120);
  EXPECT_EQ(h200.sms_for_clusters(8), 112);
  EXPECT_LE(find_profile("h100_pcie")->sms_for_clusters(8), 114 - 114 % 8);
}

TEST(IdentifyProfileTest, LiveDevicesFindTheirSku) {
  const auto id = [](std::string name, int arch, std::int64_t sms, double gib) {
    return identify_profile(
               live(std::move(name), arch, sms, static_cast<std::int64_t>(gib * (1 << 30))))
        .id;
  };
  EXPECT_EQ(id("NVIDIA H200", 90, 132, 139.8), "h200");
  EXPECT_EQ(id("NVIDIA H100 80GB HBM3", 90, 132, 79.2), "h100_sxm");
  EXPECT_EQ(id("NVIDIA H100 PCIe", 90, 114, 79.2), "h100_pcie");
  EXPECT_EQ(id("NVIDIA A100-SXM4-40GB", 80, 108, 39.4), "a100_40");
  EXPECT_EQ(id("NVIDIA A100-SXM4-80GB", 80, 108, 79.3), "a100_80");
  EXPECT_EQ(id("NVIDIA A10G", 86, 80, 22.1), "a10g");
  EXPECT_EQ(id("NVIDIA L40S", 89, 142, 44.4), "l40s");
  EXPECT_EQ(id("NVIDIA GeForce RTX 3090", 86, 82, 23.7), "rtx_3090");
  EXPECT_EQ(id("NVIDIA GeForce RTX 4090", 89, 128, 23.6), "rtx_4090");
  EXPECT_EQ(id("NVIDIA B200", 100, 148, 178.4), "b200");
}

TEST(IdentifyProfileTest, CousinsGetAnIdOfTheirOwn) {
  const std::int64_t gib = 1 << 30;
  EXPECT_EQ(identify_profile(live("NVIDIA H200 NVL", 90, 132, 140 * gib)).id, "h200_nvl_132sm");
  EXPECT_EQ(identify_profile(live("NVIDIA GH200 144G HBM3e", 90, 132, 140 * gib)).id,
            "gh200_144g_hbm3e_132sm");
  EXPECT_EQ(identify_profile(live("NVIDIA A100 80GB PCIe", 80, 108, 79 * gib)).id,
            "a100_80gb_pcie_108sm");
  EXPECT_EQ(identify_profile(live("NVIDIA GeForce RTX 4090 D", 89, 114, 24 * gib)).id,
            "geforce_rtx_4090_d_114sm");
  EXPECT_EQ(identify_profile(live("NVIDIA H200 MIG 3g.71gb", 90, 60, 70 * gib)).id,
            "h200_mig_3g_71gb_60sm");
}

TEST(IdentifyProfileTest, LiveFiguresWinWhereTheDriverKnows) {
  DeviceProfile measured = live("NVIDIA H200", 90, 132, std::int64_t{140} << 30);
  measured.l2_bytes = 50 << 20;
  measured.smem_per_block_optin = 232448;
  const DeviceProfile profile = identify_profile(measured);
  EXPECT_EQ(profile.l2_bytes, 50 << 20);
  EXPECT_EQ(profile.memory_bytes, std::int64_t{140} << 30);
  EXPECT_EQ(profile.registers_per_sm, 65536);
  EXPECT_DOUBLE_EQ(profile.dram_gbps, 4800);
}

TEST(ParseProfileTest, AFigureNeedsItsSource) {
  const std::string text(embedded_profiles().front().content);
  const auto broken = [&](std::string_view from, std::string_view to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return parse_profile(changed, "p.json").error().message;
  };
  EXPECT_EQ(broken("\"sm_count\": {", "\"sm_count\": {\"unit\": 1, "),
            "p.json:5: sm_count.unit: unknown key, known are value, source");
  const std::size_t source = text.find("\"source\": \"");
  const std::string named = text.substr(source, text.find("\"}", source) - source);
  EXPECT_EQ(broken(named, "\"source\": \""), "p.json:4: sm_arch: a figure needs its source");
  EXPECT_EQ(broken("\"id\": ", "\"ids\": "),
            "p.json:2: ids: unknown key, known are id, name, sm_arch, sm_count, "
            "smem_per_block_optin, smem_per_sm, registers_per_sm, max_threads_per_sm, "
            "max_blocks_per_sm, l2_bytes, memory_bytes, dram_gbps, sm_clock_mhz, "
            "dense_16bit_tflops, fp32_tflops, graph_node_us, stream_launch_us, rates");
  EXPECT_EQ(broken("\"read_share\": {", "\"reading_share\": {"),
            "p.json:17: rates.read_share: missing");
  EXPECT_EQ(broken("\"value\": 108", "\"value\": 0"),
            "p.json:5: sm_count.value: 0 is not positive");
}

}  // namespace
}  // namespace kernwright
