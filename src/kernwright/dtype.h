#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <kernwright/export.h>

namespace kernwright {

/// Element types. The spelling of an enumerator is its spelling on disk and in the CLI; the order
/// is part of the expression language (`dtype == dtype_bf16`) and only ever grows at the end.
enum class DType { bf16, fp16, fp32, fp64, fp8_e4m3, int8, int32 };

/// Bytes of one element.
KERNWRIGHT_API std::int64_t byte_size(DType dtype);

/// The enumerator's own spelling.
KERNWRIGHT_API std::string_view to_string(DType dtype);

/// The dtype spelled `name`, if there is one.
KERNWRIGHT_API std::optional<DType> parse_dtype(std::string_view name);

}  // namespace kernwright
