#pragma once

#include <functional>
#include <memory>

#include "device/cuda/cuda_device.h"
#include "device/cuda/launcher.h"
#include "device/driver/cupti.h"
#include "device/driver/driver.h"
#include <kernwright/result.h>

namespace kernwright {

using LoadCupti = std::function<Result<const CuptiApi*>()>;

/// Does the same as `open_cuda_device`, with a given driver, and a CUPTI that is loaded when
/// something is counted.
Result<std::unique_ptr<Device>> open_device(const DriverApi& api, int ordinal,
                                            const CudaDeviceOptions& options,
                                            LoadCupti load_profiler = load_cupti);

/// Does the same as `Launcher::load`, with a given driver.
Result<std::unique_ptr<Launcher>> load_launcher(const DriverApi& api, std::string_view cubin,
                                                const ExecutionPlan& plan, int ordinal);

}  // namespace kernwright
