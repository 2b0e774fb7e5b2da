#pragma once

#include <cstdint>

#include <kernwright/dtype.h>

namespace kernwright {

/// Element `index` of an array of `dtype` in host memory, widened.
double load_element(const void* data, DType dtype, std::int64_t index);

/// Stores `value` as element `index`, rounded to nearest even; fp8 and integers saturate.
void store_element(void* data, DType dtype, std::int64_t index, double value);

/// Spacing of `dtype` around zero, the part of an error bound that does not shrink with the value:
/// the smallest subnormal of fp16 and fp8, the smallest normal number of the wider formats
/// (arithmetic may flush below it); for integers the half that rounding to one may take, so that an
/// integer result is still met exactly.
double error_floor(DType dtype);

/// Where the range of `dtype` ends as far as comparing goes: results and references that lie
/// beyond, infinite ones too, are taken to lie there. Infinite for formats as wide as fp32.
double range_end(DType dtype);

}  // namespace kernwright
