#include "model/operation/dtype_format.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>

#include "support/spelling.h"
#include "support/text.h"

namespace kernwright {
namespace {

using enum NumberKind;

constexpr DTypeFormat kFormats[] = {
    {"bf16", "kernwright::bf16", "bfloat16", real, 16, true, 8, 7},
    {"fp16", "kernwright::fp16", "float16 half f16", real, 16, true, 5, 10},
    {"fp32", "float", "float32 float f32", real, 32, true, 8, 23},
    {"fp64", "double", "float64 double f64", real, 64, true, 11, 52},
    {"fp8_e4m3", "kernwright::fp8_e4m3", "float8_e4m3fn float8_e4m3 e4m3", real, 8, true, 4, 3,
     false, true},
    {"int8", "signed char", "", integer, 8},
    {"int32", "int", "int", integer, 32},
    {"int64", "long long", "long", integer, 64},
    {"uint8", "unsigned char", "", integer, 8, false},
    {"bool", "bool", "", boolean, 8, false},
    {"fp8_e5m2", "kernwright::fp8_e5m2", "float8_e5m2 e5m2", real, 8, true, 5, 2, true, true},
};
static_assert(std::size(kFormats) == std::size(kDTypes));

/// Arithmetic and references are fp32: no wider format counts for more, and none needs a bound of
/// its own.
constexpr int kWideExponentBits = 8;
constexpr int kReferenceMantissaBits = 23;

bool is_wide(const DTypeFormat& f) { return f.exponent_bits >= kWideExponentBits; }

int counted_mantissa_bits(const DTypeFormat& f) {
  return std::min(f.mantissa_bits, kReferenceMantissaBits);
}

std::uint64_t low_bits(int count) { return (std::uint64_t{1} << count) - 1; }

/// The bits of the largest exponent.
std::uint64_t top_exponent(const DTypeFormat& f) {
  return low_bits(f.exponent_bits) << f.mantissa_bits;
}

std::uint64_t largest_finite(const DTypeFormat& f) {
  return f.has_infinity ? top_exponent(f) - 1 : (top_exponent(f) | low_bits(f.mantissa_bits)) - 1;
}

double decode_real(const DTypeFormat& f, std::uint64_t bits) {
  const auto exponent = static_cast<int>((bits >> f.mantissa_bits) & low_bits(f.exponent_bits));
  const std::uint64_t mantissa = bits & low_bits(f.mantissa_bits);
  double value = 0;
  if ((bits & top_exponent(f)) == top_exponent(f) &&
      (f.has_infinity || mantissa == low_bits(f.mantissa_bits))) {
    value = f.has_infinity && mantissa == 0 ? std::numeric_limits<double>::infinity()
                                            : std::numeric_limits<double>::quiet_NaN();
  } else {
    const std::uint64_t implicit = exponent == 0 ? 0 : std::uint64_t{1} << f.mantissa_bits;
    value = std::ldexp(static_cast<double>(mantissa + implicit),
                       std::max(exponent, 1) - f.bias() - f.mantissa_bits);
  }
  return ((bits >> (f.exponent_bits + f.mantissa_bits)) & 1) != 0 ? -value : value;
}

std::uint64_t encode_real(const DTypeFormat& f, double value) {
  const std::uint64_t sign =
      std::signbit(value) ? std::uint64_t{1} << (f.exponent_bits + f.mantissa_bits) : 0;
  if (std::isnan(value)) return sign | top_exponent(f) | low_bits(f.mantissa_bits);
  const std::uint64_t most = f.has_infinity && !f.saturates ? top_exponent(f) : largest_finite(f);
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | most;
  const int smallest = 1 - f.bias();
  const int exponent = magnitude == 0 ? smallest : std::max(std::ilogb(magnitude), smallest);
  // In units of the last place. The addition carries into the next exponent.
  const double units = std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent));
  const double bits = units + std::ldexp(exponent + f.bias() - 1, f.mantissa_bits);
  return sign | static_cast<std::uint64_t>(std::min(bits, static_cast<double>(most)));
}

/// The integers of the format, without regard to what a double holds exactly.
std::int64_t highest_integer(const DTypeFormat& f) {
  return static_cast<std::int64_t>(low_bits(f.is_signed ? f.bits - 1 : f.bits));
}

}  // namespace

const DTypeFormat& dtype_format(DType dtype) { return kFormats[static_cast<std::size_t>(dtype)]; }

int dtype_bits(DType dtype) { return dtype_format(dtype).bits; }

std::int64_t bytes_of(std::int64_t count, DType dtype) {
  const int bits = dtype_bits(dtype);
  return bits % 8 == 0 ? count * (bits / 8) : (count * bits + 7) / 8;
}

std::string_view to_string(DType dtype) { return dtype_format(dtype).name; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (const DType dtype : kDTypes) {
    if (to_string(dtype) == name) return dtype;
  }
  return std::nullopt;
}

std::optional<DType> dtype_meant(std::string_view name) {
  const std::string lower = lower_case(name);
  for (const DType dtype : kDTypes) {
    const std::vector<std::string_view> aliases = split(dtype_format(dtype).aliases, ' ');
    if (std::find(aliases.begin(), aliases.end(), lower) != aliases.end()) return dtype;
  }
  return parse_dtype(lower);
}

bool is_integer(DType dtype) { return dtype_format(dtype).kind != real; }

std::optional<IntegerRange> integer_range(DType dtype) {
  constexpr std::int64_t kExactInADouble = std::int64_t{1} << 53;
  const DTypeFormat& f = dtype_format(dtype);
  if (f.kind == real) return std::nullopt;
  if (f.kind == boolean) return IntegerRange{0, 1};
  const std::int64_t highest = highest_integer(f);
  if (highest > kExactInADouble) return IntegerRange{-kExactInADouble, kExactInADouble};
  return IntegerRange{f.is_signed ? -highest - 1 : 0, highest};
}

double decode(DType dtype, std::uint64_t bits) {
  const DTypeFormat& f = dtype_format(dtype);
  if (f.kind == real) {
    // The common ones, without a detour.
    if (f.bits == 64) return std::bit_cast<double>(bits);
    if (f.bits == 32) return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    return decode_real(f, bits);
  }
  if (!f.is_signed) return static_cast<double>(bits);
  const int unused = 64 - f.bits;
  return static_cast<double>(static_cast<std::int64_t>(bits << unused) >> unused);
}

std::uint64_t encode(DType dtype, double value) {
  const DTypeFormat& f = dtype_format(dtype);
  if (f.kind == real) {
    if (f.bits == 64) return std::bit_cast<std::uint64_t>(value);
    if (f.bits == 32) return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    return encode_real(f, value);
  }
  if (std::isnan(value)) return 0;
  if (f.kind == boolean) return value != 0 ? 1 : 0;
  const double rounded = std::nearbyint(value);
  const std::int64_t highest = highest_integer(f);
  const std::int64_t lowest = f.is_signed ? -highest - 1 : 0;
  std::int64_t stored = 0;
  // The largest 64-bit integer is no double: its conversion rounds to the next one.
  if (rounded >= static_cast<double>(highest)) {
    stored = highest;
  } else if (rounded <= static_cast<double>(lowest)) {
    stored = lowest;
  } else {
    stored = static_cast<std::int64_t>(rounded);
  }
  return static_cast<std::uint64_t>(stored) & (f.bits == 64 ? ~std::uint64_t{0} : low_bits(f.bits));
}

double largest(DType dtype) {
  if (const auto range = integer_range(dtype)) return static_cast<double>(range->highest);
  const DTypeFormat& f = dtype_format(dtype);
  return is_wide(f) ? 0x1p127 : decode_real(f, largest_finite(f));
}

double error_floor(DType dtype) {
  const DTypeFormat& f = dtype_format(dtype);
  if (f.kind != real) return 0.5;
  return std::ldexp(1, 1 - f.bias() - (is_wide(f) ? 0 : f.mantissa_bits));
}

double range_end(DType dtype) {
  const DTypeFormat& f = dtype_format(dtype);
  if (f.kind != real || is_wide(f)) return std::numeric_limits<double>::infinity();
  // A value that rounds to the next power of two overflows to infinity, unless the format
  // saturates.
  return f.saturates ? largest(dtype) : std::ldexp(1, f.bias() + 1);
}

double rounding_unit(DType dtype) {
  const DTypeFormat& f = dtype_format(dtype);
  return f.kind == real ? std::ldexp(1, -counted_mantissa_bits(f) - 1) : 0;
}

double exact_integers(DType dtype) {
  const DTypeFormat& f = dtype_format(dtype);
  return f.kind == real ? std::ldexp(1, counted_mantissa_bits(f) + 1) : largest(dtype);
}

}  // namespace kernwright
