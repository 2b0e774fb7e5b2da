#include "fake_nvml.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

namespace kernwright {
namespace {

FakeNvml* fake = nullptr;

/// Writes the value, or fails if there is none.
template <typename Out, typename T>
int give(Out* out, const std::optional<T>& value, double factor = 1) {
  if (!value) return fake->failing;
  *out = static_cast<Out>(static_cast<double>(*value) * factor);
  return 0;
}
int give_text(char* out, unsigned int length, const std::string& text) {
  if (text.empty()) return fake->failing;
  if (text.size() >= length) return 7;
  std::strcpy(out, text.c_str());
  return 0;
}

template <GpuProcess::Kind Kind>
int list(NvmlApi::Device, unsigned int* count, NvmlApi::Process* out) {
  if (!fake->says.processes) return fake->failing;
  const unsigned int room = *count;
  *count = 0;
  for (const GpuProcess& process : *fake->says.processes) {
    if (process.kind != Kind) continue;
    if (*count < room) {
      const auto bytes =
          process.used_bytes ? static_cast<unsigned long long>(*process.used_bytes) : ~0ULL;
      out[*count] = {process.pid, bytes, 0, 0};
    }
    ++*count;
  }
  return *count > room ? 7 : 0;
}

int clock(int domain, unsigned int* mhz, const std::optional<int>& sm,
          const std::optional<int>& memory) {
  return give(mhz, domain == 1 ? sm : memory);
}

}  // namespace

FakeNvml::FakeNvml() {
  fake = this;
  says.processes.emplace();
  says.memory_used_bytes = 0;
  says.utilization_percent = 0;
  says.mig_enabled = false;
  says.enforced_power_limit_w = 700;
  says.default_power_limit_w = 700;
  says.power_w = 76;
  says.clock_event_reasons = 1;
  says.violations = {0, 0, 0};
  says.sm_mhz = 345;
  says.max_sm_mhz = 1980;
  says.application_sm_mhz = 1980;
  says.default_application_sm_mhz = 1980;
  says.memory_mhz = 3201;
  says.max_memory_mhz = 3201;
  says.performance_state = 0;
  says.ecc = true;
  says.persistence = true;
  says.remap_pending = false;
  says.confidential_compute = false;
  says.temperature_c = 31;
  says.vbios = "96.00.01";
  says.serial = "1654";

  api.system_get_driver_version = [](char* out, unsigned int length) {
    return give_text(out, length, "580.1");
  };
  api.system_get_process_name = [](unsigned int pid, char* out, unsigned int length) {
    for (const GpuProcess& process : *fake->says.processes) {
      if (process.pid == pid) return give_text(out, length, process.name);
    }
    return fake->failing;
  };
  api.system_get_conf_compute_state = [](NvmlApi::ConfidentialCompute* state) {
    return give(&state->feature, fake->says.confidential_compute);
  };
  api.device_get_handle_by_uuid = [](const char* text, NvmlApi::Device* device) {
    *device = fake;
    return fake->uuid == text ? 0 : 6;
  };
  api.device_from_mig_device = [](NvmlApi::Device, NvmlApi::Device* device) {
    *device = fake;
    return 0;
  };
  api.device_get_compute_processes = list<GpuProcess::Kind::compute>;
  api.device_get_graphics_processes = list<GpuProcess::Kind::graphics>;
  api.device_get_mps_processes = list<GpuProcess::Kind::mps>;
  api.device_get_process_utilization = [](NvmlApi::Device, NvmlApi::ProcessUtilization* out,
                                          unsigned int* count, unsigned long long) {
    unsigned int written = 0;
    for (const GpuProcess& process : *fake->says.processes) {
      if (!process.sm_percent) continue;
      // The newest first, and an older one that does not count.
      const auto percent = static_cast<unsigned int>(*process.sm_percent);
      out[written++] = {process.pid, 2000, percent, 0, 0, 0};
      out[written++] = {process.pid, 1000, 99, 0, 0, 0};
    }
    *count = written;
    return written > 0 ? 0 : fake->failing;
  };
  api.device_get_memory_info = [](NvmlApi::Device, NvmlApi::Memory* memory) {
    if (memory->version != (sizeof(NvmlApi::Memory) | 2U << 24U)) return 2;
    return give(&memory->used, fake->says.memory_used_bytes);
  };
  api.device_get_utilization = [](NvmlApi::Device, NvmlApi::Utilization* utilization) {
    return give(&utilization->gpu, fake->says.utilization_percent);
  };
  api.device_get_mig_mode = [](NvmlApi::Device, unsigned int* current, unsigned int*) {
    return give(current, fake->says.mig_enabled);
  };
  api.device_get_attributes = [](NvmlApi::Device, NvmlApi::MigAttributes* attributes) {
    const int status = give(&attributes->gpu_instance_slices, fake->says.gpu_instance_slices);
    if (status != 0) return status;
    return give(&attributes->compute_instance_slices, fake->says.compute_instance_slices);
  };
  api.device_get_enforced_power_limit = [](NvmlApi::Device, unsigned int* milliwatts) {
    return give(milliwatts, fake->says.enforced_power_limit_w, 1e3);
  };
  api.device_get_default_power_limit = [](NvmlApi::Device, unsigned int* milliwatts) {
    return give(milliwatts, fake->says.default_power_limit_w, 1e3);
  };
  api.device_get_power_usage = [](NvmlApi::Device, unsigned int* milliwatts) {
    return give(milliwatts, fake->says.power_w, 1e3);
  };
  api.device_get_clock_event_reasons = [](NvmlApi::Device, unsigned long long* reasons) {
    return give(reasons, fake->says.clock_event_reasons);
  };
  api.device_get_violation_status = [](NvmlApi::Device, int policy, NvmlApi::ViolationTime* time) {
    const ViolationSeconds& seconds = fake->says.violations;
    const auto& value = policy == 0   ? seconds.power
                        : policy == 1 ? seconds.thermal
                                      : seconds.board_limit;
    return give(&time->violation_ns, value, 1e9);
  };
  api.device_get_clock = [](NvmlApi::Device, int domain, unsigned int* mhz) {
    return clock(domain, mhz, fake->says.sm_mhz, fake->says.memory_mhz);
  };
  api.device_get_max_clock = [](NvmlApi::Device, int domain, unsigned int* mhz) {
    return clock(domain, mhz, fake->says.max_sm_mhz, fake->says.max_memory_mhz);
  };
  api.device_get_applications_clock = [](NvmlApi::Device, int domain, unsigned int* mhz) {
    return clock(domain, mhz, fake->says.application_sm_mhz, {});
  };
  api.device_get_default_applications_clock = [](NvmlApi::Device, int domain, unsigned int* mhz) {
    return clock(domain, mhz, fake->says.default_application_sm_mhz, {});
  };
  api.device_get_performance_state = [](NvmlApi::Device, int* state) {
    return give(state, fake->says.performance_state);
  };
  api.device_get_ecc_mode = [](NvmlApi::Device, int* current, int*) {
    return give(current, fake->says.ecc);
  };
  api.device_get_persistence_mode = [](NvmlApi::Device, int* mode) {
    return give(mode, fake->says.persistence);
  };
  api.device_get_remapped_rows = [](NvmlApi::Device, unsigned int*, unsigned int*,
                                    unsigned int* pending, unsigned int*) {
    return give(pending, fake->says.remap_pending);
  };
  api.device_get_temperature = [](NvmlApi::Device, int, unsigned int* celsius) {
    return give(celsius, fake->says.temperature_c);
  };
  api.device_get_vbios_version = [](NvmlApi::Device, char* out, unsigned int length) {
    return give_text(out, length, fake->says.vbios);
  };
  api.device_get_serial = [](NvmlApi::Device, char* out, unsigned int length) {
    return give_text(out, length, fake->says.serial);
  };
}

FakeNvml::~FakeNvml() { fake = nullptr; }

}  // namespace kernwright
