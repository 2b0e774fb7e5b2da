#pragma once

#include <cstdint>

#include <kernwright/dtype.h>

namespace kernwright {

/// Returns element `index` of an array of `dtype` in host memory, widened.
double load_element(const void* data, DType dtype, std::int64_t index);

/// Stores `value` as element `index`, rounded to nearest even; fp8 and integers saturate.
void store_element(void* data, DType dtype, std::int64_t index, double value);

/// The spacing of `dtype` around zero, which is the part of an error bound that does not shrink
/// with the value. For fp16 and fp8 it is the smallest subnormal number. For the wider formats it
/// is the smallest normal number, since arithmetic may flush what is below it. For integers it is
/// the half that rounding to an integer may take, so that an integer result is still met exactly.
double error_floor(DType dtype);

/// Returns the end of the range of `dtype` for comparisons. Results and references beyond it,
/// infinite ones too, count as if they were at the end. It is infinite for formats as wide as fp32.
double range_end(DType dtype);

}  // namespace kernwright
