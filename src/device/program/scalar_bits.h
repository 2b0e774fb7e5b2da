#pragma once

#include <cstdint>

#include <kernwright/dtype.h>

namespace kernwright {

/// The bits of `value` in `dtype`, in the low bytes: rounded to nearest even; integers and fp8
/// (which has no infinity) saturate, as the GPU's conversions do.
std::uint64_t scalar_bits(DType dtype, double value);

}  // namespace kernwright
