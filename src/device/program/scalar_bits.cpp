#include "device/program/scalar_bits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "support/saturated.h"

namespace kernwright {
namespace {

/// A binary floating-point format of at most 16 bits.
struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  std::uint32_t overflow;  ///< bits of a value beyond the largest finite value
  std::uint32_t largest;   ///< bits of the largest finite value
  std::uint32_t nan;
};

constexpr SmallFloat kBf16{8, 7, 0x7f80, 0x7f7f, 0x7fc0};
constexpr SmallFloat kFp16{5, 10, 0x7c00, 0x7bff, 0x7e00};
constexpr SmallFloat kFp8E4m3{4, 3, 0x7e, 0x7e, 0x7f};
constexpr SmallFloat kFp8E5m2{5, 2, 0x7b, 0x7b, 0x7f};

std::uint32_t round_to(const SmallFloat& format, double value) {
  if (std::isnan(value)) return format.nan;
  const std::uint32_t sign =
      std::signbit(value) ? 1U << (format.exponent_bits + format.mantissa_bits) : 0U;
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | format.overflow;
  const int smallest_exponent = 2 - (1 << (format.exponent_bits - 1));
  const int exponent =
      magnitude == 0 ? smallest_exponent : std::max(std::ilogb(magnitude), smallest_exponent);
  if (exponent > -smallest_exponent + 2) return sign | format.overflow;
  // In units of the last place. The addition carries the implicit bit into the exponent field.
  const auto units = static_cast<std::uint32_t>(
      std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent)));
  const std::uint32_t bits =
      (static_cast<std::uint32_t>(exponent - smallest_exponent) << format.mantissa_bits) + units;
  return sign | (bits > format.largest ? format.overflow : bits);
}

template <typename Integer>
std::uint64_t round_to_integer(double value) {
  return static_cast<std::make_unsigned_t<Integer>>(saturated<Integer>(value));
}

}  // namespace

std::uint64_t scalar_bits(DType dtype, double value) {
  switch (dtype) {
    case DType::bf16:
      return round_to(kBf16, value);
    case DType::fp16:
      return round_to(kFp16, value);
    case DType::fp32:
      return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case DType::fp64:
      return std::bit_cast<std::uint64_t>(value);
    case DType::fp8_e4m3:
      return round_to(kFp8E4m3, value);
    case DType::int8:
      return round_to_integer<std::int8_t>(value);
    case DType::int32:
      return round_to_integer<std::int32_t>(value);
    case DType::int64:
      return round_to_integer<std::int64_t>(value);
    case DType::uint8:
      return round_to_integer<std::uint8_t>(value);
    case DType::boolean:
      return to_bool(value) ? 1 : 0;
    case DType::fp8_e5m2:
      return round_to(kFp8E5m2, value);
  }
  return 0;
}

}  // namespace kernwright
