#pragma once

#include <chrono>
#include <memory>

#include "device/device.h"
#include <kernwright/result.h>

namespace kernwright {

struct CudaDeviceOptions {
  /// The time for which one call may wait for the GPU. After that the device counts as lost,
  /// because a running kernel cannot be stopped.
  std::chrono::milliseconds deadline{10'000};
};

/// Opens GPU `ordinal` through the driver API (libcuda.so.1 by dlopen) on its primary context.
/// Errors: `unavailable` with the reason if there is no driver or no such device.
Result<std::unique_ptr<Device>> open_cuda_device(int ordinal,
                                                 const CudaDeviceOptions& options = {});

/// Returns the number of GPUs that the driver shows. Errors: `unavailable` with the reason (no
/// libcuda.so.1, no device).
Result<int> cuda_device_count();

/// Profile and identity of a GPU.
struct CudaDeviceInfo {
  DeviceProfile profile;
  DeviceIdentity identity;
};
Result<CudaDeviceInfo> describe_cuda_device(int ordinal);

}  // namespace kernwright
