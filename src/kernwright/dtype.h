#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <kernwright/export.h>

namespace kernwright {

/// Element types. An enumerator is spelled on disk and in the CLI as it is here, except `boolean`,
/// one byte of 0 or 1, which is "bool" there. The order is part of the expression language (`dtype
/// == dtype_bf16`), so new types are only ever added at the end.
enum class DType { bf16, fp16, fp32, fp64, fp8_e4m3, int8, int32, int64, uint8, boolean, fp8_e5m2 };

/// All dtypes, in their order.
inline constexpr DType kDTypes[] = {DType::bf16,     DType::fp16,    DType::fp32,    DType::fp64,
                                    DType::fp8_e4m3, DType::int8,    DType::int32,   DType::int64,
                                    DType::uint8,    DType::boolean, DType::fp8_e5m2};

/// Returns the bits of one element.
KERNWRIGHT_API int dtype_bits(DType dtype);

/// Returns the bytes of `count` elements that are next to each other, rounded up.
KERNWRIGHT_API std::int64_t bytes_of(std::int64_t count, DType dtype);

/// Returns the spelling on disk and in the CLI.
KERNWRIGHT_API std::string_view to_string(DType dtype);

/// Returns the dtype spelled `name`, if there is one.
KERNWRIGHT_API std::optional<DType> parse_dtype(std::string_view name);

}  // namespace kernwright
