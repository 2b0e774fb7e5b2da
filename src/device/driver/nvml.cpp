#include "device/driver/nvml.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "support/libraries/dynamic_library.h"
#include "support/text.h"

namespace kernwright {
namespace {

// Constants of NVML, from its API reference.
constexpr int kSuccess = 0;
constexpr int kInsufficientSize = 7;
// NVML may start without a GPU. (With the flag that attaches to none, it finds no GPU by its UUID.)
constexpr unsigned int kInitFlags = 1;
constexpr int kClockSm = 1;
constexpr int kClockMemory = 2;
constexpr int kPolicyPower = 0;
constexpr int kPolicyThermal = 1;
constexpr int kPolicyBoardLimit = 3;
constexpr int kGpuSensor = 0;
constexpr unsigned int kMemoryVersion =
    static_cast<unsigned int>(sizeof(NvmlApi::Memory)) | (2U << 24U);
constexpr unsigned long long kNotAvailable = ~0ULL;
constexpr std::size_t kMaxProcesses = 1024;

void bind_all(const DynamicLibrary& library, NvmlApi& api) {
  // Binds the first of the names that exists: newer drivers have new names beside the old ones.
  const auto bind = [&library](auto& function, auto... names) {
    for (const char* name : {names...}) {
      if (void* symbol = library.symbol(name)) {
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
        return;
      }
    }
  };
  bind(api.init_with_flags, "nvmlInitWithFlags");
  bind(api.system_get_driver_version, "nvmlSystemGetDriverVersion");
  bind(api.system_get_process_name, "nvmlSystemGetProcessName");
  bind(api.system_get_conf_compute_state, "nvmlSystemGetConfComputeState");
  bind(api.device_get_handle_by_uuid, "nvmlDeviceGetHandleByUUID");
  bind(api.device_from_mig_device, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
  bind(api.device_get_compute_processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  bind(api.device_get_graphics_processes, "nvmlDeviceGetGraphicsRunningProcesses_v3");
  bind(api.device_get_mps_processes, "nvmlDeviceGetMPSComputeRunningProcesses_v3");
  bind(api.device_get_process_utilization, "nvmlDeviceGetProcessUtilization");
  bind(api.device_get_memory_info, "nvmlDeviceGetMemoryInfo_v2");
  bind(api.device_get_utilization, "nvmlDeviceGetUtilizationRates");
  bind(api.device_get_mig_mode, "nvmlDeviceGetMigMode");
  bind(api.device_get_attributes, "nvmlDeviceGetAttributes_v2");
  bind(api.device_get_enforced_power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  bind(api.device_get_default_power_limit, "nvmlDeviceGetPowerManagementDefaultLimit");
  bind(api.device_get_power_usage, "nvmlDeviceGetPowerUsage");
  bind(api.device_get_clock_event_reasons, "nvmlDeviceGetCurrentClocksEventReasons",
       "nvmlDeviceGetCurrentClocksThrottleReasons");
  bind(api.device_get_violation_status, "nvmlDeviceGetViolationStatus");
  bind(api.device_get_clock, "nvmlDeviceGetClockInfo");
  bind(api.device_get_max_clock, "nvmlDeviceGetMaxClockInfo");
  bind(api.device_get_applications_clock, "nvmlDeviceGetApplicationsClock");
  bind(api.device_get_default_applications_clock, "nvmlDeviceGetDefaultApplicationsClock");
  bind(api.device_get_performance_state, "nvmlDeviceGetPerformanceState");
  bind(api.device_get_ecc_mode, "nvmlDeviceGetEccMode");
  bind(api.device_get_persistence_mode, "nvmlDeviceGetPersistenceMode");
  bind(api.device_get_remapped_rows, "nvmlDeviceGetRemappedRows");
  bind(api.device_get_retired_pages_pending, "nvmlDeviceGetRetiredPagesPendingStatus");
  bind(api.device_get_temperature, "nvmlDeviceGetTemperature");
  bind(api.device_get_vbios_version, "nvmlDeviceGetVbiosVersion");
  bind(api.device_get_serial, "nvmlDeviceGetSerial");
}

Result<NvmlApi> open_nvml() {
  Result<DynamicLibrary> library = DynamicLibrary::open({"libnvidia-ml.so.1"});
  if (!library) return Error{ErrorCode::unavailable, "no NVML: " + library.error().message};
  NvmlApi api;
  bind_all(*library, api);
  const int status = api.init_with_flags ? api.init_with_flags(kInitFlags) : -1;
  if (status != kSuccess) {
    return Error{ErrorCode::unavailable,
                 concat(library->name(), ": nvmlInitWithFlags: error ", status)};
  }
  return api;
}

/// Returns whether the function exists and succeeds.
template <typename Function, typename... Arguments>
bool call(Function function, Arguments... arguments) {
  return function != nullptr && function(arguments...) == kSuccess;
}

template <typename Function, typename... Arguments>
std::optional<int> number(Function function, Arguments... arguments) {
  unsigned int value = 0;
  if (!call(function, arguments..., &value)) return std::nullopt;
  return static_cast<int>(value);
}

std::optional<double> watts(NvmlApi::GetNumber function, NvmlApi::Device device) {
  unsigned int milliwatts = 0;
  if (!call(function, device, &milliwatts)) return std::nullopt;
  return milliwatts / 1e3;
}

std::string text(NvmlApi::GetText function, NvmlApi::Device device) {
  std::array<char, 96> buffer{};
  if (!call(function, device, buffer.data(), static_cast<unsigned int>(buffer.size() - 1))) {
    return {};
  }
  return buffer.data();
}

std::optional<double> violation_seconds(const NvmlApi& api, NvmlApi::Device device, int policy) {
  NvmlApi::ViolationTime time{};
  if (!call(api.device_get_violation_status, device, policy, &time)) return std::nullopt;
  return static_cast<double>(time.violation_ns) * 1e-9;
}

/// Appends the processes of one kind. Returns false if they cannot be listed.
bool list_processes(NvmlApi::ListProcesses list, NvmlApi::Device device, GpuProcess::Kind kind,
                    std::vector<GpuProcess>& processes) {
  if (list == nullptr) return false;
  std::vector<NvmlApi::Process> found(16);
  int status = kInsufficientSize;
  auto count = static_cast<unsigned int>(found.size());
  while (status == kInsufficientSize && found.size() <= kMaxProcesses) {
    count = static_cast<unsigned int>(found.size());
    status = list(device, &count, found.data());
    if (status == kInsufficientSize) found.resize(std::max<std::size_t>(count, found.size() * 2));
  }
  if (status != kSuccess) return false;
  found.resize(std::min<std::size_t>(count, found.size()));
  for (const NvmlApi::Process& process : found) {
    GpuProcess known{
        .pid = process.pid, .kind = kind, .used_bytes = {}, .name = {}, .sm_percent = {}};
    if (process.used_bytes != kNotAvailable) {
      known.used_bytes = static_cast<std::int64_t>(process.used_bytes);
    }
    processes.push_back(std::move(known));
  }
  return true;
}

void add_utilization(const NvmlApi& api, NvmlApi::Device device,
                     std::vector<GpuProcess>& processes) {
  std::vector<NvmlApi::ProcessUtilization> samples(kMaxProcesses);
  auto count = static_cast<unsigned int>(samples.size());
  if (!call(api.device_get_process_utilization, device, samples.data(), &count, 0ULL)) return;
  samples.resize(std::min<std::size_t>(count, samples.size()));
  std::sort(samples.begin(), samples.end(),
            [](const auto& a, const auto& b) { return a.timestamp_us < b.timestamp_us; });
  for (const NvmlApi::ProcessUtilization& sample : samples) {
    for (GpuProcess& process : processes) {
      if (process.pid == sample.pid) process.sm_percent = static_cast<int>(sample.sm);
    }
  }
}

std::optional<std::vector<GpuProcess>> processes_of(const NvmlApi& api, NvmlApi::Device device) {
  using Kind = GpuProcess::Kind;
  std::vector<GpuProcess> processes;
  if (!list_processes(api.device_get_compute_processes, device, Kind::compute, processes)) {
    return std::nullopt;
  }
  list_processes(api.device_get_graphics_processes, device, Kind::graphics, processes);
  list_processes(api.device_get_mps_processes, device, Kind::mps, processes);
  for (GpuProcess& process : processes) {
    std::array<char, 256> name{};
    if (call(api.system_get_process_name, process.pid, name.data(),
             static_cast<unsigned int>(name.size() - 1))) {
      process.name = name.data();
    }
  }
  add_utilization(api, device, processes);
  return processes;
}

void read_clocks(const NvmlApi& api, NvmlApi::Device device, GpuFacts& facts) {
  facts.sm_mhz = number(api.device_get_clock, device, kClockSm);
  facts.max_sm_mhz = number(api.device_get_max_clock, device, kClockSm);
  facts.application_sm_mhz = number(api.device_get_applications_clock, device, kClockSm);
  facts.default_application_sm_mhz =
      number(api.device_get_default_applications_clock, device, kClockSm);
  facts.memory_mhz = number(api.device_get_clock, device, kClockMemory);
  facts.max_memory_mhz = number(api.device_get_max_clock, device, kClockMemory);
  int state = 0;
  if (call(api.device_get_performance_state, device, &state)) facts.performance_state = state;
  unsigned long long reasons = 0;
  if (call(api.device_get_clock_event_reasons, device, &reasons)) {
    facts.clock_event_reasons = reasons;
  }
  facts.violations = {violation_seconds(api, device, kPolicyPower),
                      violation_seconds(api, device, kPolicyThermal),
                      violation_seconds(api, device, kPolicyBoardLimit)};
}

void read_health(const NvmlApi& api, NvmlApi::Device device, GpuFacts& facts) {
  int current = 0;
  int pending = 0;
  if (call(api.device_get_ecc_mode, device, &current, &pending)) facts.ecc = current != 0;
  if (call(api.device_get_persistence_mode, device, &current)) facts.persistence = current != 0;
  unsigned int correctable = 0, uncorrectable = 0, remap = 0, failed = 0;
  if (call(api.device_get_remapped_rows, device, &correctable, &uncorrectable, &remap, &failed)) {
    facts.remap_pending = remap != 0;
  }
  if (call(api.device_get_retired_pages_pending, device, &pending)) {
    facts.remap_pending = facts.remap_pending.value_or(false) || pending != 0;
  }
  facts.temperature_c = number(api.device_get_temperature, device, kGpuSensor);
  facts.vbios = text(api.device_get_vbios_version, device);
  facts.serial = text(api.device_get_serial, device);
}

}  // namespace

Result<const NvmlApi*> load_nvml() {
  static const auto& nvml = *new Result<NvmlApi>(open_nvml());
  if (!nvml) return nvml.error();
  return &*nvml;
}

std::string nvml_driver_version(const NvmlApi& api) {
  std::array<char, 96> version{};
  const bool read = call(api.system_get_driver_version, version.data(),
                         static_cast<unsigned int>(version.size() - 1));
  return read ? version.data() : "";
}

Result<GpuFacts> read_gpu_facts(const NvmlApi& api, std::string_view uuid) {
  // CUDA reports only the bytes of a UUID. NVML's text also says whether it names a GPU or an
  // instance.
  const std::string gpu(uuid);
  const std::string instance =
      concat("MIG-", uuid.substr(std::min(uuid.find('-') + 1, uuid.size())));
  NvmlApi::Device device = nullptr;
  if (api.device_get_handle_by_uuid == nullptr) {
    return Error{ErrorCode::unavailable, "NVML lacks nvmlDeviceGetHandleByUUID"};
  }
  const int status = api.device_get_handle_by_uuid(gpu.c_str(), &device);
  const bool whole = status == kSuccess;
  if (!whole && !call(api.device_get_handle_by_uuid, instance.c_str(), &device)) {
    return Error{ErrorCode::unavailable, concat("NVML knows no GPU ", uuid, ": error ", status)};
  }
  GpuFacts facts;
  facts.processes = processes_of(api, device);
  NvmlApi::Memory memory{};
  memory.version = kMemoryVersion;
  if (call(api.device_get_memory_info, device, &memory)) {
    facts.memory_used_bytes = static_cast<std::int64_t>(memory.used);
  }
  NvmlApi::MigAttributes attributes{};
  if (!whole && call(api.device_get_attributes, device, &attributes)) {
    facts.gpu_instance_slices = static_cast<int>(attributes.gpu_instance_slices);
    facts.compute_instance_slices = static_cast<int>(attributes.compute_instance_slices);
  }
  // The following facts are about the whole GPU.
  NvmlApi::Device parent = nullptr;
  if (!whole && call(api.device_from_mig_device, device, &parent)) device = parent;
  NvmlApi::Utilization utilization{};
  if (call(api.device_get_utilization, device, &utilization)) {
    facts.utilization_percent = static_cast<int>(utilization.gpu);
  }
  unsigned int mode = 0, pending = 0;
  facts.mig_enabled = !whole;
  if (whole && call(api.device_get_mig_mode, device, &mode, &pending))
    facts.mig_enabled = mode != 0;
  facts.enforced_power_limit_w = watts(api.device_get_enforced_power_limit, device);
  facts.default_power_limit_w = watts(api.device_get_default_power_limit, device);
  facts.power_w = watts(api.device_get_power_usage, device);
  read_clocks(api, device, facts);
  read_health(api, device, facts);
  NvmlApi::ConfidentialCompute confidential{};
  if (call(api.system_get_conf_compute_state, &confidential)) {
    facts.confidential_compute = confidential.feature != 0;
  }
  return facts;
}

}  // namespace kernwright
