#pragma once

#include <string_view>

#include "device/device.h"
#include "model/candidate/candidate.h"
#include <kernwright/result.h>

namespace kernwright {

/// Loads `cubin`, launches its plan once on buffers of zeros with the scalars' defaults, and waits.
/// Errors: the errors of the device, which include lack of memory.
Result<void> launch_once(Device& device, std::string_view cubin, const ExecutionPlan& plan);

}  // namespace kernwright
