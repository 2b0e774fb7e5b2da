#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kernwright/result.h>

namespace kernwright {

/// The functions of libnvidia-ml.so.1 that kernwright calls. Neither the package of CUDA headers
/// nor PyPI's wheels have NVML's header, so its prototypes and structures are declared here after
/// NVML's API reference. It is a plain table, so that tests can replace NVML by functions of their
/// own. Some drivers lack some functions, so any entry may be null.
struct NvmlApi {
  using Device = void*;

  struct Process {
    unsigned int pid;
    unsigned long long used_bytes;
    unsigned int gpu_instance;
    unsigned int compute_instance;
  };
  struct Memory {
    unsigned int version;
    unsigned long long total, reserved, free, used;
  };
  struct MigAttributes {
    unsigned int multiprocessors, copy_engines, decoders, encoders, jpeg_engines, ofa_engines;
    unsigned int gpu_instance_slices, compute_instance_slices;
    unsigned long long memory_mb;
  };
  struct ViolationTime {
    unsigned long long reference_us, violation_ns;
  };
  struct Utilization {
    unsigned int gpu, memory;
  };
  struct ProcessUtilization {
    unsigned int pid;
    unsigned long long timestamp_us;
    unsigned int sm, memory, encoder, decoder;
  };
  struct ConfidentialCompute {
    unsigned int environment, feature, dev_tools;
  };

  using ListProcesses = int (*)(Device, unsigned int* count, Process*);
  using GetNumber = int (*)(Device, unsigned int*);
  using GetClock = int (*)(Device, int domain, unsigned int* mhz);
  using GetText = int (*)(Device, char*, unsigned int length);

  int (*init_with_flags)(unsigned int) = nullptr;
  int (*system_get_driver_version)(char*, unsigned int length) = nullptr;
  int (*system_get_process_name)(unsigned int pid, char*, unsigned int length) = nullptr;
  int (*system_get_conf_compute_state)(ConfidentialCompute*) = nullptr;
  int (*device_get_handle_by_uuid)(const char*, Device*) = nullptr;
  int (*device_from_mig_device)(Device, Device*) = nullptr;
  ListProcesses device_get_compute_processes = nullptr;
  ListProcesses device_get_graphics_processes = nullptr;
  ListProcesses device_get_mps_processes = nullptr;
  int (*device_get_process_utilization)(Device, ProcessUtilization*, unsigned int* count,
                                        unsigned long long since_us) = nullptr;
  int (*device_get_memory_info)(Device, Memory*) = nullptr;
  int (*device_get_utilization)(Device, Utilization*) = nullptr;
  int (*device_get_mig_mode)(Device, unsigned int* current, unsigned int* pending) = nullptr;
  int (*device_get_attributes)(Device, MigAttributes*) = nullptr;
  GetNumber device_get_enforced_power_limit = nullptr;
  GetNumber device_get_default_power_limit = nullptr;
  GetNumber device_get_power_usage = nullptr;
  int (*device_get_clock_event_reasons)(Device, unsigned long long*) = nullptr;
  int (*device_get_violation_status)(Device, int policy, ViolationTime*) = nullptr;
  GetClock device_get_clock = nullptr;
  GetClock device_get_max_clock = nullptr;
  GetClock device_get_applications_clock = nullptr;
  GetClock device_get_default_applications_clock = nullptr;
  int (*device_get_performance_state)(Device, int*) = nullptr;
  int (*device_get_ecc_mode)(Device, int* current, int* pending) = nullptr;
  int (*device_get_persistence_mode)(Device, int*) = nullptr;
  int (*device_get_remapped_rows)(Device, unsigned int* correctable, unsigned int* uncorrectable,
                                  unsigned int* pending, unsigned int* failed) = nullptr;
  int (*device_get_retired_pages_pending)(Device, int*) = nullptr;
  int (*device_get_temperature)(Device, int sensor, unsigned int* celsius) = nullptr;
  GetText device_get_vbios_version = nullptr;
  GetText device_get_serial = nullptr;
};

/// Returns NVML of this process. It is loaded and initialised on the first call and never unloaded.
/// It attaches to no GPU before it is asked about one. Errors: `unavailable` if there is no
/// libnvidia-ml.so.1 or its initialisation fails.
Result<const NvmlApi*> load_nvml();

/// Returns the driver's version, "580.159.04". Empty if NVML does not report it.
std::string nvml_driver_version(const NvmlApi& api);

/// Bits of `GpuFacts::clock_event_reasons`.
inline constexpr std::uint64_t kReasonApplicationClocks = 0x2;
inline constexpr std::uint64_t kReasonSoftwarePowerCap = 0x4;
inline constexpr std::uint64_t kReasonHardwareSlowdown = 0x8;
inline constexpr std::uint64_t kReasonSyncBoost = 0x10;
inline constexpr std::uint64_t kReasonSoftwareThermal = 0x20;
inline constexpr std::uint64_t kReasonHardwareThermal = 0x40;
inline constexpr std::uint64_t kReasonPowerBrake = 0x80;
inline constexpr std::uint64_t kReasonDisplayClocks = 0x100;

/// A process with a context on the GPU.
struct GpuProcess {
  enum class Kind { compute, graphics, mps };
  unsigned int pid = 0;
  Kind kind = Kind::compute;
  std::optional<std::int64_t> used_bytes;
  std::string name;
  std::optional<int> sm_percent;  ///< of the last second or so
};

/// Cumulative times, in seconds, for which the clocks of one GPU were held down.
struct ViolationSeconds {
  std::optional<double> power;
  std::optional<double> thermal;
  std::optional<double> board_limit;
};

/// The facts that NVML reports about one GPU. Facts that it does not report are empty.
struct GpuFacts {
  /// Empty if the compute processes cannot be listed.
  std::optional<std::vector<GpuProcess>> processes;
  std::optional<std::int64_t> memory_used_bytes;  ///< without the driver's reserve
  std::optional<int> utilization_percent;
  std::optional<bool> mig_enabled;
  /// For a MIG instance: the slices of its GPU instance and of its compute instance.
  std::optional<int> gpu_instance_slices;
  std::optional<int> compute_instance_slices;
  std::optional<double> enforced_power_limit_w;
  std::optional<double> default_power_limit_w;
  std::optional<double> power_w;
  std::optional<std::uint64_t> clock_event_reasons;
  ViolationSeconds violations;
  std::optional<int> sm_mhz;
  std::optional<int> max_sm_mhz;
  std::optional<int> application_sm_mhz;
  std::optional<int> default_application_sm_mhz;
  std::optional<int> memory_mhz;
  std::optional<int> max_memory_mhz;
  std::optional<int> performance_state;  ///< 0 is the fastest
  std::optional<bool> ecc;
  std::optional<bool> persistence;
  std::optional<bool> remap_pending;  ///< rows to be remapped or pages to be retired
  std::optional<bool> confidential_compute;
  std::optional<int> temperature_c;
  std::string vbios;
  std::string serial;
};

/// Asks NVML about the GPU or the MIG instance with the UUID `uuid` ("GPU-..." as in records).
/// Changes nothing. Errors: `unavailable` if NVML does not know it.
Result<GpuFacts> read_gpu_facts(const NvmlApi& api, std::string_view uuid);

}  // namespace kernwright
