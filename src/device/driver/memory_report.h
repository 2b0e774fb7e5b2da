#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "device/driver/driver.h"
#include "device/driver/nvml.h"

namespace kernwright {

/// Returns a sentence about a GPU's free memory and the processes that hold most, the largest
/// first: "1.2 GB of 143.8 GB are free; process 77 (python3) holds 130.1 GB".
std::string describe_memory(std::size_t free, std::size_t total, std::vector<GpuProcess> processes);

/// Returns the same for the GPU of the current context, which has the UUID `uuid`. Leaves out the
/// processes if NVML does not list them, and is empty if the driver does not report the numbers.
std::string report_memory(const DriverApi& api, std::string_view uuid);

}  // namespace kernwright
