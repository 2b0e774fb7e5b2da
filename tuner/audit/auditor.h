#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tuner/audit/audit.h"
#include "tuner/audit/host_facts.h"
#include "tuner/audit/launch_probe.h"

namespace kernwright {

struct AuditorOptions {
  /// Processes on the GPU that belong to this run and are idle while it measures: the parent of a
  /// measuring process, say. This process is always one.
  std::vector<unsigned int> own_pids;
  std::filesystem::path cache_root;  ///< of the baseline of launch costs; empty: keep none
};

/// Looks at the environment of one GPU's measurements, before the process has a context there and
/// again whenever it is asked. Used by the thread that measures. Reads only; takes a few tens of
/// milliseconds, and up to a second where it has to find out whether somebody else is working.
class Auditor {
 public:
  /// What it looks at. Tests put their own in place.
  struct Sources {
    std::function<Result<GpuFacts>()> gpu;
    std::function<Environment()> environment;
    std::function<std::vector<std::string>()> mapped_files;
    std::function<HostLoad()> host_load;
    std::function<void(std::chrono::milliseconds)> sleep;
    std::function<double()> seconds;
  };
  /// NVML's facts of the GPU `uuid`, and those of this process.
  static Sources live(std::string uuid);

  /// Takes the first look: to be made before the device is opened, and before CUDA is initialised
  /// where the UUID is known by then.
  Auditor(Sources sources, AuditorOptions options);
  Auditor(std::string uuid, AuditorOptions options)
      : Auditor(live(std::move(uuid)), std::move(options)) {}

  /// To be called once the device is open: from now on launch costs are probed. The device outlives
  /// the auditor's last look. A kernel that cannot be compiled costs a row, not the audit.
  void watch(Device& device, CompilePool& pool);

  /// The state since the last look; the first includes what was seen before the device was opened.
  /// `released` is called once the device may be given other work.
  Audit look(const std::function<void()>& released = {});

 private:
  AuditInputs gather(const std::function<void()>& released = {});
  void add_gpu(AuditInputs& inputs);
  void add_company(AuditInputs& inputs, const GpuFacts& facts);
  void add_launch_cost(AuditInputs& inputs);
  std::optional<int> paused_percent();
  void keep_baseline(const AuditInputs& inputs, const Audit& audit) const;

  Sources sources_;
  AuditorOptions options_;
  Audit before_;                           ///< what the first look found
  std::vector<unsigned int> pids_before_;  ///< on the GPU then
  std::int64_t unexplained_before_ = 0;
  std::optional<unsigned int> own_elsewhere_;  ///< our pid where NVML counts in another namespace
  bool watching_ = false;
  std::optional<LaunchProbe> probe_;
  std::string no_probe_ = "the device is not open";
  std::optional<LaunchBaseline> baseline_;
  LaunchCost profile_;
  ViolationSeconds last_violations_;
  double last_seconds_ = 0;
};

}  // namespace kernwright
