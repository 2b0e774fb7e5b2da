#include "tuner/audit/auditor.h"

#include <algorithm>
#include <thread>
#include <unistd.h>
#include <utility>

#include "support/steady_seconds.h"
#include "support/try.h"

namespace kernwright {
namespace {

/// NVML measures utilisation over its last period, which is at most a second.
constexpr std::chrono::milliseconds kPauseStep{50};
constexpr int kPauseSteps = 20;
constexpr int kQuietPercent = 3;

std::optional<double> growth(const std::optional<double>& now, const std::optional<double>& then) {
  if (!now || !then) return std::nullopt;
  return *now - *then;
}

bool contains(const std::vector<unsigned int>& pids, unsigned int pid) {
  return std::find(pids.begin(), pids.end(), pid) != pids.end();
}

}  // namespace

Auditor::Sources Auditor::live(std::string uuid) {
  return {.gpu = [uuid = std::move(uuid)]() -> Result<GpuFacts> {
            KW_ASSIGN(const NvmlApi* nvml, load_nvml());
            return read_gpu_facts(*nvml, uuid);
          },
          .environment = read_environment,
          .mapped_files = [] { return HostReader().mapped_files(); },
          .host_load = [host = HostReader()]() mutable { return host.load(); },
          .sleep = [](std::chrono::milliseconds time) { std::this_thread::sleep_for(time); },
          .seconds = steady_seconds};
}

Auditor::Auditor(Sources sources, AuditorOptions options)
    : sources_(std::move(sources)), options_(std::move(options)) {
  options_.own_pids.push_back(static_cast<unsigned int>(::getpid()));
  before_ = assess(gather());
  // Before there is a device, launch costs cannot be known, so that row is not a finding.
  std::erase_if(before_.rows, [](const AuditRow& row) { return row.check == "launch_cost"; });
}

void Auditor::watch(Device& device, CompilePool& pool) {
  watching_ = true;
  profile_ = launch_cost_of(device.profile());
  if (!options_.cache_root.empty()) baseline_.emplace(options_.cache_root, device.identity());
  Result<LaunchProbe> probe =
      LaunchProbe::make(device, pool, [seconds = sources_.seconds] { return seconds() * 1e6; });
  if (probe) {
    probe_.emplace(std::move(*probe));
  } else {
    no_probe_ = probe.error().message;
  }
}

Audit Auditor::look(const std::function<void()>& released) {
  const AuditInputs inputs = gather(released);
  Audit audit = assess(inputs);
  keep_baseline(inputs, audit);
  audit.merge(std::exchange(before_, {}));
  return audit;
}

AuditInputs Auditor::gather(const std::function<void()>& released) {
  AuditInputs inputs;
  add_launch_cost(inputs);
  if (released) released();
  inputs.environment = sources_.environment();
  inputs.mapped_files = sources_.mapped_files();
  add_gpu(inputs);
  inputs.host = sources_.host_load();
  return inputs;
}

void Auditor::add_gpu(AuditInputs& inputs) {
  Result<GpuFacts> facts = sources_.gpu();
  const double now = sources_.seconds();
  if (!facts) {
    inputs.no_gpu_facts = facts.error().message;
    return;
  }
  inputs.interval_seconds = now - last_seconds_;
  inputs.violations = {growth(facts->violations.power, last_violations_.power),
                       growth(facts->violations.thermal, last_violations_.thermal),
                       growth(facts->violations.board_limit, last_violations_.board_limit)};
  last_seconds_ = now;
  last_violations_ = facts->violations;
  add_company(inputs, *facts);
  inputs.gpu = *std::move(facts);
  if (suspects_company(inputs)) inputs.paused_percent = paused_percent();
}

void Auditor::add_company(AuditInputs& inputs, const GpuFacts& facts) {
  inputs.own_pids = options_.own_pids;
  const std::vector<GpuProcess> processes = facts.processes.value_or(std::vector<GpuProcess>());
  std::int64_t explained = 0;
  bool listed = false;
  for (const GpuProcess& process : processes) {
    listed = listed || contains(options_.own_pids, process.pid);
    explained += process.used_bytes.value_or(0);
  }
  const std::int64_t unexplained = facts.memory_used_bytes.value_or(explained) - explained;
  if (!watching_) {
    for (const GpuProcess& process : processes) pids_before_.push_back(process.pid);
    inputs.unexplained_bytes = unexplained_before_ = unexplained;
    return;
  }
  if (listed) {
    inputs.unexplained_bytes = unexplained;
    return;
  }
  // In a container NVML may count processes in another namespace, or hide them. The first process
  // that came after our first look then counts as ours, for good, and so does its memory. Another
  // process that came at the same time shows in the launch probe if it works.
  for (const GpuProcess& process : processes) {
    if (own_elsewhere_) break;
    if (!contains(pids_before_, process.pid)) own_elsewhere_ = process.pid;
  }
  if (own_elsewhere_) inputs.own_pids.push_back(*own_elsewhere_);
  inputs.unexplained_bytes = unexplained_before_;
}

std::optional<int> Auditor::paused_percent() {
  std::optional<int> least;
  for (int step = 0; step < kPauseSteps; ++step) {
    const Result<GpuFacts> facts = sources_.gpu();
    if (!facts || !facts->utilization_percent) return least;
    least = std::min(least.value_or(100), *facts->utilization_percent);
    if (*least <= kQuietPercent) return least;
    sources_.sleep(kPauseStep);
  }
  return least;
}

void Auditor::add_launch_cost(AuditInputs& inputs) {
  inputs.launch_profile = profile_;
  if (baseline_) inputs.launch_baseline = baseline_->load();
  inputs.no_launch_cost = no_probe_;
  if (!probe_) return;
  const double usual_sm_mhz = inputs.launch_baseline ? inputs.launch_baseline->sm_mhz : 0;
  if (const Result<LaunchCost> cost = probe_->measure(usual_sm_mhz)) {
    inputs.launch_cost = *cost;
  } else {
    inputs.no_launch_cost = cost.error().message;
  }
}

/// Stores the launch costs of a clean look as the baseline, if there is none or they are lower.
/// (Lower costs prove that the old baseline was disturbed.)
void Auditor::keep_baseline(const AuditInputs& inputs, const Audit& audit) const {
  if (!baseline_ || !inputs.launch_cost) return;
  const bool clean = std::all_of(audit.rows.begin(), audit.rows.end(), [](const AuditRow& row) {
    return row.trust == Trust::a || (row.check == "launch_cost" && row.trust == Trust::b);
  });
  const LaunchCost& now = *inputs.launch_cost;
  const auto& then = inputs.launch_baseline;
  const bool cheaper = then && (now.graph_node_us < 0.9 * then->graph_node_us ||
                                now.stream_launch_us < 0.9 * then->stream_launch_us);
  // If it cannot be written, the next session compares with the profile again.
  if (clean && (!then || cheaper)) static_cast<void>(baseline_->store(now));
}

}  // namespace kernwright
