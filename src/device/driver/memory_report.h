#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "device/driver/driver.h"
#include "device/driver/nvml.h"

namespace kernwright {

/// "1.2 GB of 143.8 GB are free; process 77 (python3) holds 130.1 GB": what is left of a GPU's
/// memory, and who holds most, the largest first.
std::string describe_memory(std::size_t free, std::size_t total, std::vector<GpuProcess> processes);

/// The same of the current context's GPU, whose UUID is `uuid`; without the processes where NVML
/// does not list them, and empty where the driver says nothing.
std::string report_memory(const DriverApi& api, std::string_view uuid);

}  // namespace kernwright
