#include "tuner/audit/audit.h"

#include <cstdlib>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kernwright {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kMiB = 1 << 20;

GpuProcess process(unsigned int pid, std::optional<int> sm_percent = {},
                   GpuProcess::Kind kind = GpuProcess::Kind::compute, std::string name = "other") {
  return {pid, kind, 500 * kMiB, std::move(name), sm_percent};
}

/// Returns a machine at rest, on which we are process 1.
AuditInputs quiet() {
  AuditInputs inputs;
  inputs.environment = {{"PATH", "/bin"}, {"CUDA_VISIBLE_DEVICES", "0"}, {"NV_CUDNN_VERSION", "9"}};
  inputs.mapped_files = {"/usr/lib/libc.so.6", "/usr/lib/libcuda.so.1"};
  inputs.host = HostLoad{.stolen_share = 0.001,
                         .delayed_share = 0.002,
                         .throttled_seconds = 0,
                         .runnable = 3,
                         .cores = 16};
  GpuFacts gpu;
  gpu.processes = {process(1)};
  gpu.memory_used_bytes = 500 * kMiB;
  gpu.mig_enabled = false;
  gpu.enforced_power_limit_w = 700;
  gpu.default_power_limit_w = 700;
  gpu.clock_event_reasons = 1;
  gpu.sm_mhz = 1980;
  gpu.max_sm_mhz = 1980;
  gpu.application_sm_mhz = 1980;
  gpu.default_application_sm_mhz = 1980;
  gpu.remap_pending = false;
  inputs.gpu = gpu;
  inputs.own_pids = {1};
  inputs.violations = {0, 0, 0};
  inputs.interval_seconds = 10;
  inputs.launch_cost = LaunchCost{1.1, 2.1, 5, 0, 1980};
  inputs.launch_baseline = LaunchCost{1.1, 2.1, 5, 0, 1980};
  return inputs;
}

const AuditRow& row(const Audit& audit, std::string_view check) {
  for (const AuditRow& candidate : audit.rows) {
    if (candidate.check == check) return candidate;
  }
  static const AuditRow none;
  return none;
}

TEST(AuditTest, NothingFoundIsTheHighestTrust) {
  const Audit audit = assess(quiet());
  for (const AuditRow& r : audit.rows) EXPECT_EQ(r.trust, Trust::a) << r.check << ": " << r.detail;
  EXPECT_EQ(audit.rows.size(), 12U);
}

TEST(AuditTest, ARowNamesWhatLowersTheTrustAndNothingElse) {
  AuditInputs inputs = quiet();
  inputs.host->runnable = 26;
  inputs.host->delayed_share = 0.0124;
  inputs.launch_cost = {1.1, 3.0, 5, 0, 1980};
  const Audit audit = assess(inputs);
  EXPECT_EQ(row(audit, "host_load").detail, "26 threads to run on 16 cores, more than there are");
  EXPECT_EQ(row(audit, "launch_cost").detail,
            "stream launch 3 us, baseline 2.1 us, allowed 1.4 times that");
}

struct RowCase {
  const char* name;
  std::function<void(AuditInputs&)> change;
  const char* check;
  Trust trust;
  const char* detail;  ///< part of it
};

class AuditRowTest : public ::testing::TestWithParam<RowCase> {};

TEST_P(AuditRowTest, IsThatOfTheTable) {
  AuditInputs inputs = quiet();
  GetParam().change(inputs);
  const Audit audit = assess(inputs);
  const AuditRow& changed = row(audit, GetParam().check);
  EXPECT_EQ(changed.trust, GetParam().trust) << changed.detail;
  EXPECT_THAT(changed.detail, HasSubstr(GetParam().detail));
  EXPECT_EQ(audit.trust(), GetParam().trust);
}

RowCase variable(const char* name, const char* variable, const char* value, Trust trust) {
  return {name, [=](AuditInputs& i) { i.environment[variable] = value; }, "injection_variables",
          trust, trust == Trust::a ? "none set" : variable};
}

RowCase cost(const char* name, LaunchCost now, Trust trust, const char* detail) {
  return {name, [=](AuditInputs& i) { i.launch_cost = now; }, "launch_cost", trust, detail};
}

RowCase reason(const char* name, std::uint64_t bits, Trust trust, const char* detail) {
  return {name, [=](AuditInputs& i) { i.gpu->clock_event_reasons = bits; }, "clock_events", trust,
          detail};
}

const RowCase kRowCases[] = {
    variable("Injection64", "CUDA_INJECTION64_PATH", "/opt/libdummy.so", Trust::c),
    variable("Injection32", "CUDA_INJECTION32_PATH", "/opt/libdummy.so", Trust::c),
    variable("NvtxInjection", "NVTX_INJECTION64_PATH", "/opt/libdummy.so", Trust::c),
    variable("LdAudit", "LD_AUDIT", "/opt/libdummy.so", Trust::c),
    variable("LdPreload", "LD_PRELOAD", "/opt/libdummy.so", Trust::b),
    variable("NsysVariable", "NSYS_PROFILING_SESSION_ID", "1", Trust::c),
    variable("NsightVariable", "NV_NSIGHT_INJECTION_PORT_BASE", "1", Trust::c),
    variable("SanitizerVariable", "NV_SANITIZER_INJECTION_PORT_BASE", "1", Trust::c),
    variable("LaunchBlocking", "CUDA_LAUNCH_BLOCKING", "1", Trust::c),
    variable("LaunchNotBlocking", "CUDA_LAUNCH_BLOCKING", "0", Trust::a),
    variable("Coredump", "CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "1", Trust::b),
    variable("Connections", "CUDA_DEVICE_MAX_CONNECTIONS", "1", Trust::b),
    variable("EagerLoading", "CUDA_MODULE_LOADING", "EAGER", Trust::b),
    variable("LazyLoading", "CUDA_MODULE_LOADING", "LAZY", Trust::a),
    variable("EmptyVariable", "CUDA_INJECTION64_PATH", "", Trust::a),

    {"Cupti", [](AuditInputs& i) { i.mapped_files.push_back("/opt/libcupti.so.13"); },
     "mapped_libraries", Trust::c, "/opt/libcupti.so.13"},
    {"NvtxInjectionLibrary",
     [](AuditInputs& i) { i.mapped_files.push_back("/opt/libnvtx3interop_inj.so"); },
     "mapped_libraries", Trust::c, "libnvtx3interop_inj"},
    {"ToolNamedFolder", [](AuditInputs& i) { i.mapped_files.push_back("/libcupti.d/libc.so.6"); },
     "mapped_libraries", Trust::a, "among 3 files"},

    cost("CostAsUsual", {1.5, 2.2, 5.9, 0.02, 1980}, Trust::a, "baseline 1.1 us"),
    cost("DearerNode", {1.6, 2.1, 5, 0, 1980}, Trust::b, "graph node 1.6 us, baseline 1.1 us"),
    cost("MuchDearerNode", {2.3, 2.1, 5, 0, 1980}, Trust::c, "graph node 2.3 us"),
    cost("LowerClock", {2.3, 2.1, 5, 0, 1440}, Trust::c, "at 1440 MHz, baseline 1980 MHz"),
    cost("DearerLaunch", {1.1, 3.0, 5, 0, 1980}, Trust::b, "stream launch 3 us, baseline 2.1 us"),
    cost("MuchDearerLaunch", {1.1, 4.3, 5, 0, 1980}, Trust::c, "stream launch 4.3 us"),
    cost("DearerEvents", {1.1, 2.1, 9, 0, 1980}, Trust::c, "event pair 9 us, baseline 5 us"),
    cost("CheaperThanUsual", {0.5, 1.0, 2, 0, 1980}, Trust::a, "0.5 us"),
    cost("Interrupted", {1.1, 2.1, 5, 0.08, 1980}, Trust::c,
         "8 % of graphs interrupted, allowed 5 %"),
    {"CostNearTheProfile",
     [](AuditInputs& i) {
       i.launch_baseline.reset();
       i.launch_profile = {0.6, 1.1, 0, 0};
     },
     "launch_cost", Trust::a, "profile 0.6 us"},
    {"CostBeyondTheProfile",
     [](AuditInputs& i) {
       i.launch_baseline.reset();
       i.launch_profile = {0.5, 1.1, 0, 0};
     },
     "launch_cost", Trust::c, "profile 0.5 us"},
    {"CostOfAnUnknownSku", [](AuditInputs& i) { i.launch_baseline.reset(); }, "launch_cost",
     Trust::b, "nothing to hold it against"},
    {"CostUnknown",
     [](AuditInputs& i) {
       i.launch_cost.reset();
       i.no_launch_cost = "no compiler";
     },
     "launch_cost", Trust::b, "not measured: no compiler"},

    {"Interruptions", [](AuditInputs& i) { i.host->stolen_share = 0.4; }, "host_load", Trust::b,
     "interrupted for 40 %, allowed 5 %"},
    {"RunDelay", [](AuditInputs& i) { i.host->delayed_share = 0.25; }, "host_load", Trust::b,
     "waited for a core for 25 %"},
    {"Quota", [](AuditInputs& i) { i.host->throttled_seconds = 0.5; }, "host_load", Trust::b,
     "quota for 0.5 s"},
    {"RunQueue", [](AuditInputs& i) { i.host->runnable = 17; }, "host_load", Trust::b,
     "17 threads to run on 16 cores"},
    {"HostUnknown", [](AuditInputs& i) { i.host.reset(); }, "host_load", Trust::b, "not known"},

    {"BusyProcess", [](AuditInputs& i) { i.gpu->processes->push_back(process(7, 80)); },
     "foreign_processes", Trust::c, "process 7 other with 500 MiB, 80 % busy"},
    {"IdleProcess", [](AuditInputs& i) { i.gpu->processes->push_back(process(7, 0)); },
     "foreign_processes", Trust::b, "process 7 other"},
    {"ProcessOfUnknownActivity", [](AuditInputs& i) { i.gpu->processes->push_back(process(7)); },
     "foreign_processes", Trust::c, "activity not known"},
    {"ProcessIdleInOurPause",
     [](AuditInputs& i) {
       i.gpu->processes->push_back(process(7));
       i.paused_percent = 1;
     },
     "foreign_processes", Trust::b, "1 % busy"},
    {"ProcessThatSeemsIdleOnABusyGpu",
     [](AuditInputs& i) {
       i.gpu->processes->push_back(process(7, 0));
       i.paused_percent = 97;
     },
     "foreign_processes", Trust::c, "process 7 other with 500 MiB, 97 % busy"},
    {"GraphicsProcess",
     [](AuditInputs& i) {
       i.gpu->processes->push_back(process(7, 50, GpuProcess::Kind::graphics, "Xorg"));
     },
     "foreign_processes", Trust::c, "Xorg"},
    {"OwnParent",
     [](AuditInputs& i) {
       i.gpu->processes->push_back(process(7));
       i.own_pids.push_back(7);
     },
     "foreign_processes", Trust::a, "none"},
    {"BusyHiddenMemory",
     [](AuditInputs& i) {
       i.unexplained_bytes = 600 * kMiB;
       i.paused_percent = 100;
     },
     "foreign_processes", Trust::c, "600 MiB in use by no known process, allowed 200 MiB"},
    {"IdleHiddenMemory",
     [](AuditInputs& i) {
       i.unexplained_bytes = 600 * kMiB;
       i.paused_percent = 0;
     },
     "foreign_processes", Trust::b, "0 % busy"},
    {"LittleHiddenMemory", [](AuditInputs& i) { i.unexplained_bytes = 100 * kMiB; },
     "foreign_processes", Trust::a, "none"},
    {"NothingKnownOfOthers",
     [](AuditInputs& i) {
       i.gpu->processes.reset();
       i.gpu->memory_used_bytes.reset();
     },
     "foreign_processes", Trust::b, "neither"},

    {"WholeMigInstance",
     [](AuditInputs& i) {
       i.gpu->mig_enabled = true;
       i.gpu->gpu_instance_slices = 3;
       i.gpu->compute_instance_slices = 3;
     },
     "mig", Trust::b, "3 slices in a GPU instance of 3"},
    {"SharedMigInstance",
     [](AuditInputs& i) {
       i.gpu->mig_enabled = true;
       i.gpu->gpu_instance_slices = 3;
       i.gpu->compute_instance_slices = 1;
     },
     "mig", Trust::c, "1 slices in a GPU instance of 3"},
    {"MigOfUnknownSize", [](AuditInputs& i) { i.gpu->mig_enabled = true; }, "mig", Trust::c,
     "not known"},

    {"MpsVariable", [](AuditInputs& i) { i.environment["CUDA_MPS_PIPE_DIRECTORY"] = "/run/mps"; },
     "mps", Trust::b, "CUDA_MPS_PIPE_DIRECTORY=/run/mps"},
    {"MpsThreadShare",
     [](AuditInputs& i) { i.environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = "50"; }, "mps",
     Trust::c, "=50"},
    {"MpsAllThreads",
     [](AuditInputs& i) { i.environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = "100"; }, "mps",
     Trust::b, "=100"},
    {"OnlyMpsClient",
     [](AuditInputs& i) {
       i.gpu->processes = {process(5, {}, GpuProcess::Kind::compute, "nvidia-cuda-mps-server"),
                           process(1, {}, GpuProcess::Kind::mps)};
     },
     "mps", Trust::b, "a server with 1 clients"},
    {"SecondMpsClient",
     [](AuditInputs& i) {
       i.gpu->processes = {process(5, {}, GpuProcess::Kind::compute, "nvidia-cuda-mps-server"),
                           process(1, {}, GpuProcess::Kind::mps),
                           process(7, {}, GpuProcess::Kind::mps)};
     },
     "mps", Trust::c, "a server with 2 clients"},

    {"ConfidentialCompute", [](AuditInputs& i) { i.gpu->confidential_compute = true; },
     "confidential_compute", Trust::b, "on"},
    {"LoweredPowerLimit", [](AuditInputs& i) { i.gpu->enforced_power_limit_w = 500; }, "power_cap",
     Trust::b, "limit 500 W, default 700 W"},

    reason("PowerCap", 0x4, Trust::a, "power cap"),
    reason("SoftwareThermal", 0x20, Trust::a, "software thermal"),
    reason("HardwareSlowdown", 0x8, Trust::c, "hardware slowdown"),
    reason("HardwareThermal", 0x40, Trust::c, "hardware thermal"),
    reason("PowerBrake", 0x80, Trust::c, "power brake"),
    reason("SyncBoost", 0x10, Trust::b, "sync boost"),
    reason("DisplayClocks", 0x100, Trust::b, "display clocks"),
    reason("SetClocksAtTheirUsual", 0x2, Trust::a, "set clocks"),
    {"ReasonsUnknown", [](AuditInputs& i) { i.gpu->clock_event_reasons.reset(); }, "clock_events",
     Trust::b, "not known"},
    {"PowerViolation", [](AuditInputs& i) { i.violations.power = 5; }, "clock_events", Trust::a,
     "held down by power cap for 5 s of 10 s"},
    {"ShortViolation", [](AuditInputs& i) { i.violations.thermal = 0.01; }, "clock_events",
     Trust::a, "none"},
    {"ThermalViolation", [](AuditInputs& i) { i.violations.thermal = 1; }, "clock_events", Trust::b,
     "held down by heat for 1 s of 10 s"},
    {"BoardLimitViolation", [](AuditInputs& i) { i.violations.board_limit = 1; }, "clock_events",
     Trust::b, "board limit"},

    {"LoweredApplicationsClock", [](AuditInputs& i) { i.gpu->application_sm_mhz = 1200; }, "clocks",
     Trust::b, "applications clock 1200 MHz, default 1980 MHz"},
    {"LockedClock",
     [](AuditInputs& i) {
       i.gpu->clock_event_reasons = 0x2;
       i.gpu->sm_mhz = 1500;
     },
     "clocks", Trust::b, "held at 1500 MHz by a setting, usual 1980 MHz"},
    {"RestingClock", [](AuditInputs& i) { i.gpu->sm_mhz = 345; }, "clocks", Trust::a,
     "SM 345 MHz of 1980 MHz"},

    {"RemapPending", [](AuditInputs& i) { i.gpu->remap_pending = true; }, "health", Trust::c,
     "remapped"},
    {"NoNvml",
     [](AuditInputs& i) {
       i.gpu.reset();
       i.no_gpu_facts = "no NVML: gone";
     },
     "nvml", Trust::b, "nothing known: no NVML: gone"},
};
INSTANTIATE_TEST_SUITE_P(Rows, AuditRowTest, ::testing::ValuesIn(kRowCases),
                         [](const auto& param) { return param.param.name; });

TEST(AuditTest, TheInjectedLibraryIsKnownByItsPath) {
  AuditInputs inputs = quiet();
  inputs.mapped_files.push_back("/opt/libdummy.so");
  EXPECT_EQ(assess(inputs).trust(), Trust::a);
  inputs.environment["CUDA_INJECTION64_PATH"] = "/opt/libdummy.so";
  EXPECT_EQ(row(assess(inputs), "mapped_libraries").trust, Trust::c);
}

TEST(AuditTest, OnlyCompanyThatIsNotSeenToWorkIsWorthAPause) {
  AuditInputs inputs = quiet();
  EXPECT_FALSE(suspects_company(inputs));
  inputs.gpu->processes->push_back(process(7, 80));
  EXPECT_FALSE(suspects_company(inputs));
  inputs.gpu->processes->push_back(process(8));
  EXPECT_TRUE(suspects_company(inputs));
  inputs.gpu->processes->back().sm_percent = 0;
  EXPECT_TRUE(suspects_company(inputs));
  inputs = quiet();
  inputs.unexplained_bytes = 600 * kMiB;
  EXPECT_TRUE(suspects_company(inputs));
}

TEST(InjectionVariablesTest, AreThoseSetInThisProcess) {
  ::setenv("NSYS_TEST_OF_KERNWRIGHT", "1", 1);
  EXPECT_THAT(injection_variables(), Contains("NSYS_TEST_OF_KERNWRIGHT"));
  ::unsetenv("NSYS_TEST_OF_KERNWRIGHT");
  EXPECT_THAT(injection_variables(), Not(Contains("NSYS_TEST_OF_KERNWRIGHT")));
  EXPECT_TRUE(is_injection_variable("CUDA_INJECTION64_PATH"));
  EXPECT_FALSE(is_injection_variable("CUDA_VISIBLE_DEVICES"));
  EXPECT_FALSE(is_injection_variable("NV_CUDA_LIB_VERSION"));
}

TEST(RemedyTest, EveryCheckOfTheAuditHasOneButConfidentialComputing) {
  Audit all = assess(quiet());
  AuditInputs blind = quiet();
  blind.gpu.reset();
  all.merge(assess(blind));
  ASSERT_NE(row(all, "nvml").check, "");
  for (const AuditRow& each : all.rows) {
    EXPECT_EQ(remedy(each.check).empty(), each.check == "confidential_compute") << each.check;
  }
  EXPECT_EQ(remedy("no such check"), "");
}

}  // namespace
}  // namespace kernwright
