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

/// Returns true if a variable of this name loads foreign code into CUDA processes or changes how
/// they launch. Such code is loaded while CUDA initialises, so the variable must be removed before.
bool is_injection_variable(std::string_view name);

/// Returns the names of such variables in this process. The measuring process is started without
/// them.
std::vector<std::string> injection_variables();

/// The facts that the audit judges. Unknown facts are empty.
struct AuditInputs {
  Environment environment;
  std::vector<std::string> mapped_files;
  std::optional<HostLoad> host;

  std::optional<GpuFacts> gpu;
  std::string no_gpu_facts;  ///< the reason, if `gpu` is empty
  /// The processes on the GPU that belong to this run.
  std::vector<unsigned int> own_pids;
  /// GPU memory in use that belongs neither to us nor to a known process.
  std::int64_t unexplained_bytes = 0;
  /// The GPU's utilisation while we paused.
  std::optional<int> paused_percent;
  /// The growth of the violation counters since the last look, and the time since then.
  ViolationSeconds violations;
  double interval_seconds = 0;

  std::optional<LaunchCost> launch_cost;
  std::string no_launch_cost;                 ///< the reason, if `launch_cost` is empty
  std::optional<LaunchCost> launch_baseline;  ///< of this host and driver
  LaunchCost launch_profile;                  ///< of the SKU; 0 if not known
};

/// Returns the audit's rows: one per check, in a fixed order. Each detail has the observed value
/// and what it was compared with. Without the GPU's facts one row replaces the rows that need them.
Audit assess(const AuditInputs& inputs);

/// Returns what a person can do about a row that lowers the trust, also one of a session's own:
/// "end the other processes on this GPU". Empty if nothing can be done.
std::string_view remedy(std::string_view check);

/// Returns true if another process may be working on the GPU, so that pausing to find out is worth
/// its time.
bool suspects_company(const AuditInputs& inputs);

}  // namespace kernwright
