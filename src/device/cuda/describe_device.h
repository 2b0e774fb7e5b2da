#pragma once

#include <filesystem>
#include <string>

#include "device/cuda/cuda_device.h"
#include "device/driver/driver.h"
#include <kernwright/result.h>

namespace kernwright {

/// `describe_cuda_device` on a given driver.
Result<CudaDeviceInfo> describe_device(const DriverApi& api, int ordinal);

/// The driver's version, "580.159.04", as its kernel module gives it, which is NVML's text without
/// NVML: that would be loaded and initialised for this alone. Empty where `file` does not hold one.
std::string module_version(const std::filesystem::path& file = "/sys/module/nvidia/version");

}  // namespace kernwright
