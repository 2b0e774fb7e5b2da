#pragma once

#include <cstdint>

#include <kernwright/dtype.h>

namespace kernwright {

/// Returns element `index` of an array of `dtype` in host memory, widened.
double load_element(const void* data, DType dtype, std::int64_t index);

/// Stores `value` as element `index`; see `encode`.
void store_element(void* data, DType dtype, std::int64_t index, double value);

}  // namespace kernwright
