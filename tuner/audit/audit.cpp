#include "tuner/audit/audit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "support/text.h"

namespace kernwright {
namespace {

/// Unexplained memory up to this is ignored: the context of another process takes more.
constexpr std::int64_t kMemorySlack = std::int64_t{200} << 20;
/// Utilisation below this is not the work of a process: NVML's queries themselves count.
constexpr int kBusyPercent = 3;
/// Shares of time that a quiet host or GPU may lose.
constexpr double kStolenShare = 0.05;
constexpr double kViolationShare = 0.01;
constexpr double kInterruptedShare = 0.05;

std::string number(double value) { return significant(value, 3); }
std::string percent(double share) { return number(share * 100) + " %"; }
std::string mib(std::int64_t bytes) { return concat(bytes >> 20, " MiB"); }

/// The findings of one check, of which the worst decides. If some lower the trust, the row has only
/// those, the worst first, so that it names the reasons and nothing else.
class Findings {
 public:
  explicit Findings(std::string check) : check_(std::move(check)) {}

  void add(Trust trust, std::string detail) { all_[trust].push_back(std::move(detail)); }
  /// Returns the row. `otherwise` is its detail if there are no findings.
  AuditRow row(std::string_view otherwise = "") && {
    AuditRow row{.check = std::move(check_), .trust = Trust::a, .detail = {}};
    for (auto found = all_.rbegin(); found != all_.rend(); ++found) {
      if (found->first == Trust::a && row.trust != Trust::a) break;
      row.trust = std::max(row.trust, found->first);
      for (const std::string& detail : found->second) {
        row.detail += concat(row.detail.empty() ? "" : "; ", detail);
      }
    }
    if (row.detail.empty()) row.detail = otherwise;
    return row;
  }

 private:
  std::string check_;
  std::map<Trust, std::vector<std::string>> all_;
};

// An environment variable that affects measurements, and the trust that it leaves.
struct Injection {
  std::string_view name;
  Trust trust;
  bool prefix = false;
  std::string_view harmless = {};  ///< a value besides the empty one
};
constexpr Injection kInjections[] = {
    // These load a library into every CUDA or NVTX process, or into every process.
    {"CUDA_INJECTION64_PATH", Trust::c},
    {"CUDA_INJECTION32_PATH", Trust::c},
    {"NVTX_INJECTION64_PATH", Trust::c},
    {"NVTX_INJECTION32_PATH", Trust::c},
    {"LD_AUDIT", Trust::c},
    {"LD_PRELOAD", Trust::b},
    // Nsight's tools and the sanitizer set these for the processes that they start. Other NV_
    // variables only name versions of software in a container.
    {"NSYS_", Trust::c, true},
    {"QUADD_", Trust::c, true},
    {"NV_NSIGHT_", Trust::c, true},
    {"NV_TPS_", Trust::c, true},
    {"NV_COMPUTE_PROFILER_", Trust::c, true},
    {"NV_SANITIZER_", Trust::c, true},
    // These change how the driver launches.
    {"CUDA_LAUNCH_BLOCKING", Trust::c, false, "0"},
    {"CUDA_ENABLE_COREDUMP_ON_EXCEPTION", Trust::b, false, "0"},
    {"CUDA_DEVICE_MAX_CONNECTIONS", Trust::b},
    {"CUDA_MODULE_LOADING", Trust::b, false, "LAZY"},
};

const Injection* find_injection(std::string_view name) {
  const auto found = std::find_if(std::begin(kInjections), std::end(kInjections), [&](auto& known) {
    return known.prefix ? name.starts_with(known.name) : name == known.name;
  });
  return found == std::end(kInjections) ? nullptr : found;
}

AuditRow assess_variables(const AuditInputs& inputs) {
  Findings findings("injection_variables");
  for (const auto& [name, value] : inputs.environment) {
    const Injection* injection = find_injection(name);
    if (injection == nullptr || value.empty() || value == injection->harmless) continue;
    findings.add(injection->trust, concat(name, '=', value));
  }
  return std::move(findings).row("none set");
}

bool is_profiler(std::string_view file) {
  const std::string_view name = file.substr(file.rfind('/') + 1);
  for (const std::string_view stem : {"libcupti", "libnvperf", "libToolsInjection", "libnsys",
                                      "libcuinj", "libsanitizer", "libTreeLauncher"}) {
    if (name.starts_with(stem)) return true;
  }
  return name.starts_with("libnvtx") && name.find("inj") != std::string_view::npos;
}

AuditRow assess_libraries(const AuditInputs& inputs) {
  std::vector<std::string> injected;
  for (const auto& [name, value] : inputs.environment) {
    if (name.ends_with("_PATH") && find_injection(name) != nullptr) injected.push_back(value);
  }
  Findings findings("mapped_libraries");
  for (const std::string& file : inputs.mapped_files) {
    const bool named = std::find(injected.begin(), injected.end(), file) != injected.end();
    if (named || is_profiler(file)) findings.add(Trust::c, file);
  }
  return std::move(findings).row(
      concat("no profiling library among ", inputs.mapped_files.size(), " files"));
}

AuditRow assess_launch_cost(const AuditInputs& inputs) {
  Findings findings("launch_cost");
  if (!inputs.launch_cost) {
    findings.add(Trust::b, concat("not measured: ", inputs.no_launch_cost));
    return std::move(findings).row();
  }
  const LaunchCost& now = *inputs.launch_cost;
  const bool stored = inputs.launch_baseline.has_value();
  const LaunchCost& usual = stored ? *inputs.launch_baseline : inputs.launch_profile;
  const char* source = stored ? "baseline" : "profile";
  // The tolerances are wide for three reasons. Events tick once a microsecond, which is much of the
  // time between two of them. A stream launch only shows hooks and distorts no samples, which are
  // graph replays; in fresh processes on a quiet H200 host it took 2.76 to 3.83 us. A graph node
  // costs up to 1.35 times as much after two streams have overlapped, as they do in the checks of
  // finalists.
  struct Value {
    const char* name;
    double now, usual, tick, slack;
  };
  const std::string clocks =
      concat("at ", fixed(now.sm_mhz, 0), " MHz, ", source, ' ', fixed(usual.sm_mhz, 0), " MHz");
  bool compared = false;
  for (const Value& value :
       {Value{"graph node", now.graph_node_us, usual.graph_node_us, 0, 4},
        Value{"stream launch", now.stream_launch_us, usual.stream_launch_us, 0, 4},
        Value{"event pair", now.event_pair_us, usual.event_pair_us, 1.1, 1}}) {
    std::string text = concat(value.name, ' ', number(value.now), " us");
    Trust trust = Trust::a;
    if (value.usual > 0) {
      compared = true;
      text += concat(", ", source, ' ', number(value.usual), " us");
      const double ratio = std::max(0.0, value.now - value.tick) / value.usual;
      const double most = stored ? 1 + 0.10 * value.slack : 2.0;
      if (ratio > (stored ? 1 + 0.25 * value.slack : 2.0)) {
        trust = Trust::c;
      } else if (ratio > most) {
        trust = Trust::b;
      }
      if (trust != Trust::a) text += concat(", allowed ", number(most), " times that");
      // The reason may be a slow clock.
      if (trust != Trust::a && now.sm_mhz < 0.95 * usual.sm_mhz) text += concat(", ", clocks);
    }
    findings.add(trust, text);
  }
  findings.add(now.interrupted_share > kInterruptedShare ? Trust::c : Trust::a,
               concat(percent(now.interrupted_share), " of graphs interrupted, allowed ",
                      percent(kInterruptedShare)));
  if (now.sm_mhz > 0 && usual.sm_mhz > 0) findings.add(Trust::a, clocks);
  if (!compared) findings.add(Trust::b, "nothing to hold it against");
  return std::move(findings).row();
}

AuditRow assess_host(const AuditInputs& inputs) {
  Findings findings("host_load");
  if (!inputs.host) {
    findings.add(Trust::b, "not known");
    return std::move(findings).row();
  }
  const HostLoad& host = *inputs.host;
  const auto share = [&](const char* what, double value) {
    findings.add(value > kStolenShare ? Trust::b : Trust::a,
                 concat(what, ' ', percent(value), ", allowed ", percent(kStolenShare)));
  };
  share("interrupted for", host.stolen_share);
  if (host.delayed_share) share("waited for a core for", *host.delayed_share);
  if (host.throttled_seconds) {
    findings.add(*host.throttled_seconds > 0 ? Trust::b : Trust::a,
                 concat("held back by the CPU quota for ", number(*host.throttled_seconds), " s"));
  }
  if (host.runnable) {
    findings.add(*host.runnable > host.cores ? Trust::b : Trust::a,
                 concat(*host.runnable, " threads to run on ", host.cores, " cores",
                        *host.runnable > host.cores ? ", more than there are" : ""));
  }
  return std::move(findings).row();
}

bool is_mps_server(const GpuProcess& process) {
  return process.name.find("nvidia-cuda-mps") != std::string::npos;
}

/// The processes that are neither ours nor MPS's, which has a row of its own. Each is listed once,
/// with the activity that is known of any of its contexts.
std::vector<GpuProcess> foreign_processes(const AuditInputs& inputs) {
  std::vector<GpuProcess> foreign;
  if (!inputs.gpu || !inputs.gpu->processes) return foreign;
  for (const GpuProcess& process : *inputs.gpu->processes) {
    const bool own = std::find(inputs.own_pids.begin(), inputs.own_pids.end(), process.pid) !=
                     inputs.own_pids.end();
    if (own || is_mps_server(process) || process.kind == GpuProcess::Kind::mps) continue;
    const auto known = std::find_if(foreign.begin(), foreign.end(),
                                    [&](const GpuProcess& f) { return f.pid == process.pid; });
    if (known == foreign.end()) foreign.push_back(process);
  }
  return foreign;
}

AuditRow assess_company(const AuditInputs& inputs) {
  Findings findings("foreign_processes");
  const auto trust_of = [](const std::optional<int>& busy_percent) {
    return busy_percent && *busy_percent <= kBusyPercent ? Trust::b : Trust::c;
  };
  const auto activity = [](const std::optional<int>& busy_percent) {
    return busy_percent ? concat(*busy_percent, " % busy") : std::string("activity not known");
  };
  for (const GpuProcess& process : foreign_processes(inputs)) {
    // The figure of a process may be from before it began to work. So the GPU's utilisation while
    // we pause counts too.
    const auto busy = std::max(process.sm_percent, inputs.paused_percent);
    findings.add(trust_of(busy),
                 concat("process ", process.pid, process.name.empty() ? "" : " ", process.name,
                        process.used_bytes ? concat(" with ", mib(*process.used_bytes)) : "", ", ",
                        activity(busy)));
  }
  if (inputs.unexplained_bytes > kMemorySlack) {
    findings.add(trust_of(inputs.paused_percent),
                 concat(mib(inputs.unexplained_bytes), " in use by no known process, allowed ",
                        mib(kMemorySlack), ", ", activity(inputs.paused_percent)));
  }
  if (!inputs.gpu->processes && !inputs.gpu->memory_used_bytes) {
    findings.add(Trust::b, "neither processes nor memory in use are known");
  }
  return std::move(findings).row("none");
}

AuditRow assess_mig(const GpuFacts& gpu) {
  Findings findings("mig");
  if (gpu.mig_enabled.value_or(false)) {
    const bool known = gpu.gpu_instance_slices && gpu.compute_instance_slices;
    const bool alone = known && *gpu.gpu_instance_slices == *gpu.compute_instance_slices;
    findings.add(alone ? Trust::b : Trust::c,
                 known ? concat("on, a compute instance of ", *gpu.compute_instance_slices,
                                " slices in a GPU instance of ", *gpu.gpu_instance_slices)
                       : "on, instance not known");
  }
  return std::move(findings).row("off");
}

AuditRow assess_mps(const AuditInputs& inputs) {
  Findings findings("mps");
  constexpr std::string_view kShare = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
  for (const auto& [name, value] : inputs.environment) {
    if (!name.starts_with("CUDA_MPS_") || value.empty()) continue;
    const bool limits = name == kShare && value != "100";
    findings.add(limits ? Trust::c : Trust::b, concat(name, '=', value));
  }
  if (inputs.gpu && inputs.gpu->processes) {
    int clients = 0;
    bool served = false;
    for (const GpuProcess& process : *inputs.gpu->processes) {
      if (process.kind == GpuProcess::Kind::mps && !is_mps_server(process)) ++clients;
      served = served || process.kind == GpuProcess::Kind::mps || is_mps_server(process);
    }
    if (served) {
      findings.add(clients > 1 ? Trust::c : Trust::b,
                   concat("a server with ", clients, " clients"));
    }
  }
  return std::move(findings).row("off");
}

AuditRow assess_power_limit(const GpuFacts& gpu) {
  Findings findings("power_cap");
  if (gpu.enforced_power_limit_w && gpu.default_power_limit_w) {
    const double enforced = *gpu.enforced_power_limit_w;
    const double usual = *gpu.default_power_limit_w;
    findings.add(std::abs(enforced - usual) < 1 ? Trust::a : Trust::b,
                 concat("limit ", enforced, " W, default ", usual, " W"));
    if (gpu.power_w) findings.add(Trust::a, concat("drew ", fixed(*gpu.power_w, 0), " W"));
  }
  return std::move(findings).row("not known");
}

AuditRow assess_clock_events(const AuditInputs& inputs) {
  const GpuFacts& gpu = *inputs.gpu;
  // The power limit is not a finding. Every heavy kernel reaches it, and kernels are measured as
  // they run for long.
  const std::tuple<std::uint64_t, const char*, Trust> reasons[] = {
      {kReasonApplicationClocks, "set clocks", Trust::a},
      {kReasonSoftwarePowerCap, "power cap", Trust::a},
      {kReasonHardwareSlowdown, "hardware slowdown", Trust::c},
      {kReasonSyncBoost, "sync boost", Trust::b},
      {kReasonSoftwareThermal, "software thermal slowdown", Trust::a},
      {kReasonHardwareThermal, "hardware thermal slowdown", Trust::c},
      {kReasonPowerBrake, "power brake", Trust::c},
      {kReasonDisplayClocks, "display clocks", Trust::b}};
  Findings findings("clock_events");
  for (const auto& [bit, name, trust] : reasons) {
    if ((gpu.clock_event_reasons.value_or(0) & bit) != 0) findings.add(trust, name);
  }
  // The counters also show what occasional looks at the reasons miss. There is one counter for
  // heat, whether software or hardware slows the GPU down.
  const std::tuple<const char*, std::optional<double>, Trust> counters[] = {
      {"power cap", inputs.violations.power, Trust::a},
      {"heat", inputs.violations.thermal, Trust::b},
      {"board limit", inputs.violations.board_limit, Trust::b}};
  for (const auto& [name, seconds, trust] : counters) {
    if (!seconds || *seconds <= kViolationShare * inputs.interval_seconds || *seconds <= 0)
      continue;
    findings.add(trust, concat("held down by ", name, " for ", number(*seconds), " s of ",
                               number(inputs.interval_seconds), " s"));
  }
  if (!gpu.clock_event_reasons) findings.add(Trust::b, "reasons not known");
  return std::move(findings).row("none");
}

/// Assesses the clocks, which we never set. With lowered clocks measurements are steady, but not
/// valid for this SKU. The probe kernels show whether free clocks are steady.
AuditRow assess_clocks(const GpuFacts& gpu) {
  Findings findings("clocks");
  const auto add = [&](const char* name, std::optional<int> now, std::optional<int> most) {
    if (now) findings.add(Trust::a, concat(name, ' ', *now, " MHz of ", most.value_or(0), " MHz"));
  };
  add("SM", gpu.sm_mhz, gpu.max_sm_mhz);
  add("memory", gpu.memory_mhz, gpu.max_memory_mhz);
  const auto set = gpu.application_sm_mhz;
  const auto usual = gpu.default_application_sm_mhz;
  if (set && usual && *set != *usual) {
    findings.add(*set < *usual ? Trust::b : Trust::a,
                 concat("applications clock ", *set, " MHz, default ", *usual, " MHz"));
  }
  // NVML does not report locked clocks directly, but as a setting that holds the clock down.
  const bool held = (gpu.clock_event_reasons.value_or(0) & kReasonApplicationClocks) != 0;
  const auto full = usual ? usual : gpu.max_sm_mhz;
  if (held && gpu.sm_mhz && full && *gpu.sm_mhz < kFullClock * *full) {
    findings.add(Trust::b,
                 concat("held at ", *gpu.sm_mhz, " MHz by a setting, usual ", *full, " MHz"));
  }
  if (gpu.performance_state) findings.add(Trust::a, concat('P', *gpu.performance_state));
  return std::move(findings).row("not known");
}

AuditRow assess_health(const GpuFacts& gpu) {
  Findings findings("health");
  if (gpu.remap_pending.value_or(false)) findings.add(Trust::c, "memory rows wait to be remapped");
  const auto flag = [&](const char* name, const std::optional<bool>& value) {
    if (value) findings.add(Trust::a, concat(name, *value ? " on" : " off"));
  };
  flag("ECC", gpu.ecc);
  flag("persistence", gpu.persistence);
  if (gpu.temperature_c) findings.add(Trust::a, concat(*gpu.temperature_c, " C"));
  if (!gpu.vbios.empty()) findings.add(Trust::a, "VBIOS " + gpu.vbios);
  if (!gpu.serial.empty()) findings.add(Trust::a, "serial " + gpu.serial);
  return std::move(findings).row("not known");
}

}  // namespace

bool is_injection_variable(std::string_view name) { return find_injection(name) != nullptr; }

std::vector<std::string> injection_variables() {
  std::vector<std::string> names;
  for (const auto& [name, value] : read_environment()) {
    if (is_injection_variable(name)) names.push_back(name);
  }
  return names;
}

Audit assess(const AuditInputs& inputs) {
  Audit audit;
  audit.rows = {assess_variables(inputs), assess_libraries(inputs), assess_launch_cost(inputs),
                assess_host(inputs), assess_mps(inputs)};
  if (!inputs.gpu) {
    audit.rows.push_back({"nvml", Trust::b, concat("nothing known: ", inputs.no_gpu_facts)});
    return audit;
  }
  const GpuFacts& gpu = *inputs.gpu;
  const bool confidential = gpu.confidential_compute.value_or(false);
  audit.rows.insert(audit.rows.end(),
                    {assess_company(inputs), assess_mig(gpu),
                     AuditRow{"confidential_compute", confidential ? Trust::b : Trust::a,
                              confidential ? "on" : "off"},
                     assess_power_limit(gpu), assess_clock_events(inputs), assess_clocks(gpu),
                     assess_health(gpu)});
  return audit;
}

std::string_view remedy(std::string_view check) {
  static constexpr std::pair<std::string_view, std::string_view> kRemedies[] = {
      {"injection_variables", "unset these variables"},
      {"mapped_libraries", "run it without a profiler"},
      {"launch_cost", "leave host and GPU idle"},
      {"host_load", "leave the host idle, or give it more cores"},
      {"mps", "stop the MPS server: echo quit | nvidia-cuda-mps-control"},
      {"foreign_processes", "end the other processes on this GPU"},
      {"mig", "use a whole GPU"},
      {"power_cap", "restore the default power limit: nvidia-smi --power-limit"},
      {"clock_events", "see that the GPU has power and stays cool"},
      {"clocks", "reset the clocks: nvidia-smi --reset-gpu-clocks, --reset-applications-clocks"},
      {"health", "reset the GPU, or restart the machine"},
      {"nvml", "make libnvidia-ml.so.1 visible: NVIDIA_DRIVER_CAPABILITIES=compute,utility"},
      {"event_timer", "leave host and GPU idle"},
      {"reference_drift", "leave host and GPU idle"},
      {"rounds", "leave host and GPU idle"},
      {"power_blocks", "give more --seconds"},
  };
  for (const auto& [known, what] : kRemedies) {
    if (known == check) return what;
  }
  return {};
}

bool suspects_company(const AuditInputs& inputs) {
  const std::vector<GpuProcess> foreign = foreign_processes(inputs);
  return inputs.unexplained_bytes > kMemorySlack ||
         std::any_of(foreign.begin(), foreign.end(), [](const GpuProcess& process) {
           return process.sm_percent.value_or(0) <= kBusyPercent;
         });
}

}  // namespace kernwright
