#pragma once

#include <optional>
#include <string_view>

#include <kernwright/dtype.h>

namespace kernwright {

/// The dtype that a person means by `name`: its own spelling in any case, or what it is called
/// elsewhere (bfloat16, half, float8_e4m3fn). Keys and files of ours have the dtype's own spelling
/// alone, which `parse_dtype` reads.
std::optional<DType> dtype_meant(std::string_view name);

}  // namespace kernwright
