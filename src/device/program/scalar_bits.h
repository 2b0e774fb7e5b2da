#pragma once

#include <cstdint>

#include <kernwright/dtype.h>

namespace kernwright {

/// Returns the bits of `value` in `dtype`, in the low bytes of the result. Rounds to nearest even.
/// Integers and fp8, which has no infinity, saturate like the GPU's conversions.
std::uint64_t scalar_bits(DType dtype, double value);

}  // namespace kernwright
