#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/driver/nvml.h"
#include "model/result/evidence.h"
#include "model/result/measurement.h"
#include "tuner/audit/host_facts.h"
#include "tuner/audit/launch_probe.h"

namespace kernwright {

/// Whether a variable of this name puts another party's code into CUDA processes or changes how
/// they launch. Such code is loaded while CUDA initialises, so it must go before.
bool is_injection_variable(std::string_view name);

/// The names of such variables in this process: what a measuring process is started without.
std::vector<std::string> injection_variables();

/// All that the audit judges, as plain facts. What is not known is empty.
struct AuditInputs {
  Environment environment;
  std::vector<std::string> mapped_files;
  std::optional<HostLoad> host;

  std::optional<GpuFacts> gpu;
  std::string no_gpu_facts;  ///< why, where `gpu` is empty
  /// Of the processes on the GPU, those that belong to this run.
  std::vector<unsigned int> own_pids;
  /// Memory in use that no known process accounts for, and ours does not.
  std::int64_t unexplained_bytes = 0;
  /// How busy the GPU was while we left it alone.
  std::optional<int> paused_percent;
  /// Growth of the violation counters since the last look, and the time since then.
  ViolationSeconds violations;
  double interval_seconds = 0;

  std::optional<LaunchCost> launch_cost;
  std::string no_launch_cost;                 ///< why, where `launch_cost` is empty
  std::optional<LaunchCost> launch_baseline;  ///< of this host and driver
  LaunchCost launch_profile;                  ///< of the SKU; 0 where not known
};

/// One row per check, in a fixed order. Each detail names what was seen and what it was held
/// against. Without a GPU's facts the rows that need them are replaced by one that says so.
Audit assess(const AuditInputs& inputs);

/// Whether somebody else may be working on the GPU, so that a pause of our own is worth its time.
bool suspects_company(const AuditInputs& inputs);

}  // namespace kernwright
