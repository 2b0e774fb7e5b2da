#include "device/driver/memory_report.h"

#include <algorithm>
#include <functional>
#include <unistd.h>
#include <utility>

#include "support/gigabytes.h"
#include "support/text.h"

namespace kernwright {
namespace {

constexpr std::size_t kMostNamed = 4;

std::int64_t held(const GpuProcess& process) { return process.used_bytes.value_or(0); }

}  // namespace

std::string describe_memory(std::size_t free, std::size_t total,
                            std::vector<GpuProcess> processes) {
  std::string text = concat(gigabytes(static_cast<double>(free)), " of ",
                            gigabytes(static_cast<double>(total)), " are free");
  std::erase_if(processes, [](const GpuProcess& process) { return held(process) == 0; });
  std::ranges::sort(processes, std::ranges::greater(), held);
  if (processes.size() > kMostNamed) processes.resize(kMostNamed);
  for (const GpuProcess& process : processes) {
    const bool own = process.pid == static_cast<unsigned int>(getpid());
    text += concat("; ", own ? "this process" : "process ");
    if (!own)
      text += concat(process.pid, process.name.empty() ? "" : " (", process.name,
                     process.name.empty() ? "" : ")");
    text += concat(" holds ", gigabytes(static_cast<double>(held(process))));
  }
  return text;
}

std::string report_memory(const DriverApi& api, std::string_view uuid) {
  std::size_t free = 0;
  std::size_t total = 0;
  if (api.mem_get_info(&free, &total) != CUDA_SUCCESS) return {};
  std::vector<GpuProcess> processes;
  if (const Result<const NvmlApi*> nvml = load_nvml()) {
    if (Result<GpuFacts> facts = read_gpu_facts(**nvml, uuid); facts && facts->processes) {
      processes = *std::move(facts->processes);
    }
  }
  return describe_memory(free, total, std::move(processes));
}

}  // namespace kernwright
