#pragma once

#include "device/cuda_device.h"
#include "device/driver.h"
#include <kernwright/result.h>

namespace kernwright {

/// `describe_cuda_device` on a given driver.
Result<CudaDeviceInfo> describe_device(const DriverApi& api, int ordinal);

}  // namespace kernwright
