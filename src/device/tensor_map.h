#pragma once

#include "device/driver.h"
#include "model/candidate.h"

namespace kernwright {

/// Encodes a TMA descriptor for a tensor at `address` (device memory, aligned to 16 bytes).
/// The driver's layout is opaque; another address goes in by cuTensorMapReplaceAddress alone.
/// A swizzle or L2 promotion that does not exist gives CUDA_ERROR_INVALID_VALUE.
DriverStatus encode_tensor_map(const DriverApi& api, const TensorMapPlan& plan, CUdeviceptr address,
                               CUtensorMap& map);

}  // namespace kernwright
