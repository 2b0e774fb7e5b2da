#pragma once

#include <memory>
#include <vector>

#include <kernwright/result.h>

#include "device/device.h"

namespace kernwright {

/// Opens GPU `ordinal` through the driver API (libcuda.so.1 by dlopen) on its primary context.
/// Errors: `unavailable` where there is no driver or no such device, with the reason.
Result<std::unique_ptr<Device>> open_cuda_device(int ordinal);

/// Number of GPUs the driver shows. Errors: `unavailable` with the reason (no libcuda.so.1, no device).
Result<int> cuda_device_count();

/// Profile and identity of GPU `ordinal` without creating a context.
struct CudaDeviceInfo {
  DeviceProfile profile;
  DeviceIdentity identity;
};
Result<CudaDeviceInfo> describe_cuda_device(int ordinal);

}  // namespace kernwright
