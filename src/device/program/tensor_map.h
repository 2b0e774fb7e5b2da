#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "device/driver/driver.h"
#include "model/candidate/candidate.h"

namespace kernwright {

/// Encodes a TMA descriptor for a tensor at `address` (device memory, aligned to 16 bytes), with
/// `numbers` as its dims and then its strides, in place of the plan's. The driver's layout is
/// opaque. The address can be changed by cuTensorMapReplaceAddress, or by writing the word that
/// `find_address_word` finds. An unknown swizzle or L2 promotion returns CUDA_ERROR_INVALID_VALUE.
DriverStatus encode_tensor_map(const DriverApi& api, const TensorMapPlan& plan,
                               std::span<const std::int64_t> numbers, CUdeviceptr address,
                               CUtensorMap& map);
/// Does the same with the plan's own dims and strides.
DriverStatus encode_tensor_map(const DriverApi& api, const TensorMapPlan& plan, CUdeviceptr address,
                               CUtensorMap& map);

/// Returns the index of the word of `map` that holds the plain address. It is found by letting
/// cuTensorMapReplaceAddress write two addresses that differ in every bit: each must appear in that
/// word, and nothing else may change. Returns nullopt if the driver behaves otherwise.
std::optional<std::size_t> find_address_word(const DriverApi& api, const CUtensorMap& map);

}  // namespace kernwright
