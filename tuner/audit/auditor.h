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
  /// Processes on the GPU that belong to this run and are idle while it measures, such as the
  /// parent of a measuring process. This process is always one of them.
  std::vector<unsigned int> own_pids;
  std::filesystem::path cache_root;  ///< of the baseline of launch costs; empty: keep none
};

/// Audits the environment of one GPU's measurements, before the process has a context there and
/// again on demand. It only reads. A look takes a few tens of milliseconds, or up to a second if it
/// must find out whether another process works. Used by the thread that measures.
class Auditor {
 public:
  /// The sources of facts. Tests have their own.
  struct Sources {
    std::function<Result<GpuFacts>()> gpu;
    std::function<Environment()> environment;
    std::function<std::vector<std::string>()> mapped_files;
    std::function<HostLoad()> host_load;
    std::function<void(std::chrono::milliseconds)> sleep;
    std::function<double()> seconds;
  };
  /// Returns the real sources: NVML for the GPU `uuid`, and this process and host.
  static Sources live(std::string uuid);

  /// Takes the first look. To be constructed before the device is opened, and, if the UUID is known
  /// by then, before CUDA is initialised.
  Auditor(Sources sources, AuditorOptions options);
  Auditor(std::string uuid, AuditorOptions options)
      : Auditor(live(std::move(uuid)), std::move(options)) {}

  /// To be called when the device is open; from now on launch costs are probed. The device must
  /// outlive the auditor's last look. If the probe's kernel cannot be compiled, only its row is
  /// affected.
  void watch(Device& device, CompilePool& pool);

  /// Returns the state since the last look. The first result includes what was seen before the
  /// device was opened. `released` is called when the device may be given other work.
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
  std::optional<unsigned int>
      own_elsewhere_;  ///< our pid in the namespace of NVML, if that is another
  bool watching_ = false;
  std::optional<LaunchProbe> probe_;
  std::string no_probe_ = "the device is not open";
  std::optional<LaunchBaseline> baseline_;
  LaunchCost profile_;
  ViolationSeconds last_violations_;
  double last_seconds_ = 0;
};

}  // namespace kernwright
