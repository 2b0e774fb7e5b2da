#pragma once

#include <cstddef>
#include <optional>

#include "device/driver/driver.h"
#include "model/candidate/candidate.h"

namespace kernwright {

/// Encodes a TMA descriptor for a tensor at `address` (device memory, aligned to 16 bytes).
/// The driver's layout is opaque; another address goes in by cuTensorMapReplaceAddress, or where
/// `find_address_word` has seen it go.
/// A swizzle or L2 promotion that does not exist gives CUDA_ERROR_INVALID_VALUE.
DriverStatus encode_tensor_map(const DriverApi& api, const TensorMapPlan& plan, CUdeviceptr address,
                               CUtensorMap& map);

/// The word of `map` that holds its address, as it is: cuTensorMapReplaceAddress was seen to put
/// two addresses there that differ in every bit, and to change nothing else. Other addresses can
/// then be written there at no cost. None where the driver does anything else.
std::optional<std::size_t> find_address_word(const DriverApi& api, const CUtensorMap& map);

}  // namespace kernwright
