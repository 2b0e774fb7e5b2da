#include "device/driver/nvml.h"

#include <gtest/gtest.h>

#include "device/cuda/cuda_device.h"
#include "fake_nvml.h"
#include "tests/results.h"

namespace kernwright {
namespace {

TEST(NvmlTest, TellsWhatTheDriverTells) {
  FakeNvml nvml;
  nvml.says.processes = {
      {.pid = 7,
       .kind = GpuProcess::Kind::compute,
       .used_bytes = 1 << 20,
       .name = "trainer",
       .sm_percent = 42},
      {.pid = 8, .kind = GpuProcess::Kind::mps, .used_bytes = {}, .name = {}, .sm_percent = {}}};
  nvml.says.violations = {1.5, 0, 0.25};
  nvml.says.remap_pending = true;
  const GpuFacts facts = must(read_gpu_facts(nvml.api, nvml.uuid));
  ASSERT_TRUE(facts.processes);
  ASSERT_EQ(facts.processes->size(), 2U);
  const GpuProcess& compute = facts.processes->front();
  EXPECT_EQ(compute.pid, 7U);
  EXPECT_EQ(compute.used_bytes, 1 << 20);
  EXPECT_EQ(compute.name, "trainer");
  EXPECT_EQ(compute.sm_percent, 42);  // the newest sample, whatever their order
  EXPECT_EQ(facts.processes->back().kind, GpuProcess::Kind::mps);
  EXPECT_FALSE(facts.processes->back().used_bytes);
  EXPECT_EQ(facts.memory_used_bytes, 0);
  EXPECT_EQ(facts.mig_enabled, false);
  EXPECT_EQ(facts.enforced_power_limit_w, 700);
  EXPECT_EQ(facts.power_w, 76);
  EXPECT_EQ(facts.clock_event_reasons, 1U);
  EXPECT_DOUBLE_EQ(*facts.violations.power, 1.5);
  EXPECT_DOUBLE_EQ(*facts.violations.board_limit, 0.25);
  EXPECT_EQ(facts.sm_mhz, 345);
  EXPECT_EQ(facts.max_memory_mhz, 3201);
  EXPECT_EQ(facts.default_application_sm_mhz, 1980);
  EXPECT_EQ(facts.remap_pending, true);
  EXPECT_EQ(facts.confidential_compute, false);
  EXPECT_EQ(facts.vbios, "96.00.01");
  EXPECT_EQ(nvml_driver_version(nvml.api), "580.1");
}

TEST(NvmlTest, CountsMoreProcessesThanItMadeRoomFor) {
  FakeNvml nvml;
  for (unsigned int pid = 1; pid <= 40; ++pid) {
    nvml.says.processes->push_back({.pid = pid,
                                    .kind = GpuProcess::Kind::compute,
                                    .used_bytes = {},
                                    .name = {},
                                    .sm_percent = {}});
  }
  EXPECT_EQ(read_gpu_facts(nvml.api, nvml.uuid)->processes->size(), 40U);
}

void expect_nothing_known(const GpuFacts& facts) {
  EXPECT_FALSE(facts.processes);
  EXPECT_FALSE(facts.memory_used_bytes);
  EXPECT_FALSE(facts.utilization_percent);
  EXPECT_FALSE(facts.enforced_power_limit_w);
  EXPECT_FALSE(facts.clock_event_reasons);
  EXPECT_FALSE(facts.violations.power);
  EXPECT_FALSE(facts.sm_mhz);
  EXPECT_FALSE(facts.ecc);
  EXPECT_FALSE(facts.remap_pending);
  EXPECT_FALSE(facts.confidential_compute);
  EXPECT_EQ(facts.vbios, "");
}

TEST(NvmlTest, MissingFunctionsLeaveFactsEmpty) {
  const FakeNvml nvml;
  NvmlApi bare;
  bare.device_get_handle_by_uuid = nvml.api.device_get_handle_by_uuid;
  const GpuFacts facts = must(read_gpu_facts(bare, nvml.uuid));
  expect_nothing_known(facts);
  EXPECT_EQ(nvml_driver_version(bare), "");
}

TEST(NvmlTest, FailingCallsLeaveFactsEmpty) {
  FakeNvml nvml;
  nvml.says = {};
  const GpuFacts facts = must(read_gpu_facts(nvml.api, nvml.uuid));
  expect_nothing_known(facts);
}

TEST(NvmlTest, FindsTheInstanceThatCudaNamesLikeAGpu) {
  FakeNvml nvml;
  nvml.uuid = "MIG-0000";
  nvml.says.gpu_instance_slices = 3;
  nvml.says.compute_instance_slices = 1;
  const GpuFacts facts = must(read_gpu_facts(nvml.api, "GPU-0000"));
  EXPECT_EQ(facts.mig_enabled, true);
  EXPECT_EQ(facts.gpu_instance_slices, 3);
  EXPECT_EQ(facts.compute_instance_slices, 1);
}

TEST(NvmlTest, AnUnknownGpuIsAnError) {
  const FakeNvml nvml;
  for (const char* uuid : {"GPU-1", "", "nonsense"}) {
    EXPECT_THAT(read_gpu_facts(nvml.api, uuid), Fails(ErrorCode::unavailable));
  }
  EXPECT_FALSE(read_gpu_facts(NvmlApi{}, "GPU-0000"));
}

TEST(NvmlGpuTest, KnowsThisMachinesGpu) {
  const Result<CudaDeviceInfo> info = describe_cuda_device(0);
  if (!info) GTEST_SKIP() << info.error().message;
  const Result<const NvmlApi*> nvml = load_nvml();
  if (!nvml) GTEST_SKIP() << nvml.error().message;
  EXPECT_EQ(nvml_driver_version(**nvml), info->identity.driver_version);
  const GpuFacts facts = must(read_gpu_facts(**nvml, info->identity.uuid));
  if (facts.power_w) {
    EXPECT_GT(*facts.power_w, 10);
    EXPECT_LT(*facts.power_w, 1500);
  }
  if (facts.sm_mhz && facts.max_sm_mhz) {
    EXPECT_GE(*facts.max_sm_mhz, *facts.sm_mhz);
    EXPECT_GT(*facts.sm_mhz, 50);
  }
  if (facts.memory_used_bytes) {
    EXPECT_LE(*facts.memory_used_bytes, info->profile.memory_bytes);
  }
  EXPECT_LT(facts.temperature_c.value_or(0), 120);
}

}  // namespace
}  // namespace kernwright
