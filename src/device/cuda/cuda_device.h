#pragma once

#include <chrono>
#include <memory>

#include "device/device.h"
#include <kernwright/result.h>

namespace kernwright {

struct CudaDeviceOptions {
  /// How long one call may wait for the GPU. Past it the device counts as lost: a running kernel
  /// cannot be stopped.
  std::chrono::milliseconds deadline{10'000};
};

/// Opens GPU `ordinal` through the driver API (libcuda.so.1 by dlopen) on its primary context.
/// Errors: `unavailable` where there is no driver or no such device, with the reason.
Result<std::unique_ptr<Device>> open_cuda_device(int ordinal,
                                                 const CudaDeviceOptions& options = {});

/// Number of GPUs the driver shows. Errors: `unavailable` with the reason (no libcuda.so.1, no
/// device).
Result<int> cuda_device_count();

/// Profile and identity of GPU `ordinal` without creating a context.
struct CudaDeviceInfo {
  DeviceProfile profile;
  DeviceIdentity identity;
};
Result<CudaDeviceInfo> describe_cuda_device(int ordinal);

}  // namespace kernwright
