#pragma once

#include <filesystem>
#include <string>

#include "device/cuda/cuda_device.h"
#include "device/driver/driver.h"
#include <kernwright/result.h>

namespace kernwright {

/// Does the same as `describe_cuda_device`, with a given driver.
Result<CudaDeviceInfo> describe_device(const DriverApi& api, int ordinal);

/// Returns the driver's version, "580.159.04", as its kernel module reports it. NVML has the same
/// text, but would have to be loaded and initialised for it. Empty if `file` does not hold a
/// version.
std::string module_version(const std::filesystem::path& file = "/sys/module/nvidia/version");

}  // namespace kernwright
