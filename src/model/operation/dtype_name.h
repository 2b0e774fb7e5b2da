#pragma once

#include <optional>
#include <string_view>

#include <kernwright/dtype.h>

namespace kernwright {

/// Returns the dtype that a person means by `name`: our spelling in any case, or a name from
/// elsewhere (bfloat16, half, float8_e4m3fn). Keys and files have only our spelling, which
/// `parse_dtype` reads.
std::optional<DType> dtype_meant(std::string_view name);

}  // namespace kernwright
