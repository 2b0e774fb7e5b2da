#include "tuner/data/element.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "support/saturated.h"

namespace kernwright {
namespace {

/// A binary float format of at most 16 bits. One that saturates never rounds to an infinity.
struct SmallFormat {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
  bool saturates;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int sign_shift() const { return exponent_bits + mantissa_bits; }
};
constexpr SmallFormat kFp16{5, 10, true, false};
constexpr SmallFormat kFp8E4M3{4, 3, false, true};
constexpr SmallFormat kFp8E5M2{5, 2, true, true};

double decode(std::uint32_t bits, const SmallFormat& f) {
  const int exponent = static_cast<int>(bits >> f.mantissa_bits) & ((1 << f.exponent_bits) - 1);
  const std::uint32_t mantissa = bits & ((1U << f.mantissa_bits) - 1);
  const bool top = exponent == (1 << f.exponent_bits) - 1;
  double value = 0;
  if (top && f.has_infinity) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (top && mantissa == (1U << f.mantissa_bits) - 1) {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - f.bias() - f.mantissa_bits);
  } else {
    value = std::ldexp(mantissa + (1U << f.mantissa_bits), exponent - f.bias() - f.mantissa_bits);
  }
  return ((bits >> f.sign_shift()) & 1) != 0 ? -value : value;
}

std::uint32_t encode(double value, const SmallFormat& f) {
  const std::uint32_t sign = std::signbit(value) ? 1U << f.sign_shift() : 0;
  const std::uint32_t top = ((1U << f.exponent_bits) - 1) << f.mantissa_bits;
  const std::uint32_t all_mantissa = (1U << f.mantissa_bits) - 1;
  if (std::isnan(value)) return sign | top | all_mantissa;
  const std::uint32_t beyond = f.has_infinity ? top : top | all_mantissa;
  const std::uint32_t largest = f.saturates ? beyond - 1 : beyond;
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | largest;
  const int exponent =
      std::max(magnitude == 0 ? 1 - f.bias() : std::ilogb(magnitude), 1 - f.bias());
  // Rounds in units of the last place. The addition carries into the next exponent.
  const double units = std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent));
  const double bits = units + std::ldexp(exponent + f.bias() - 1, f.mantissa_bits);
  return sign | static_cast<std::uint32_t>(std::min(bits, static_cast<double>(largest)));
}

std::uint16_t encode_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

template <typename T>
T read(const void* data, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * std::int64_t{sizeof(T)}, sizeof(T));
  return value;
}

template <typename T>
void write(void* data, std::int64_t index, T value) {
  std::memcpy(static_cast<char*>(data) + index * std::int64_t{sizeof(T)}, &value, sizeof(T));
}

}  // namespace

double load_element(const void* data, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::bf16:
      return std::bit_cast<float>(static_cast<std::uint32_t>(read<std::uint16_t>(data, index))
                                  << 16);
    case DType::fp16:
      return decode(read<std::uint16_t>(data, index), kFp16);
    case DType::fp32:
      return read<float>(data, index);
    case DType::fp64:
      return read<double>(data, index);
    case DType::fp8_e4m3:
      return decode(read<std::uint8_t>(data, index), kFp8E4M3);
    case DType::int8:
      return read<std::int8_t>(data, index);
    case DType::int32:
      return read<std::int32_t>(data, index);
    case DType::int64:
      return static_cast<double>(read<std::int64_t>(data, index));
    case DType::uint8:
    case DType::boolean:
      return read<std::uint8_t>(data, index);
    case DType::fp8_e5m2:
      return decode(read<std::uint8_t>(data, index), kFp8E5M2);
  }
  return 0;
}

void store_element(void* data, DType dtype, std::int64_t index, double value) {
  switch (dtype) {
    case DType::bf16:
      return write(data, index, encode_bf16(static_cast<float>(value)));
    case DType::fp16:
      return write(data, index, static_cast<std::uint16_t>(encode(value, kFp16)));
    case DType::fp32:
      return write(data, index, static_cast<float>(value));
    case DType::fp64:
      return write(data, index, value);
    case DType::fp8_e4m3:
      return write(data, index, static_cast<std::uint8_t>(encode(value, kFp8E4M3)));
    case DType::int8:
      return write(data, index, saturated<std::int8_t>(value));
    case DType::int32:
      return write(data, index, saturated<std::int32_t>(value));
    case DType::int64:
      return write(data, index, saturated<std::int64_t>(value));
    case DType::uint8:
      return write(data, index, saturated<std::uint8_t>(value));
    case DType::boolean:
      return write(data, index, static_cast<std::uint8_t>(to_bool(value) ? 1 : 0));
    case DType::fp8_e5m2:
      return write(data, index, static_cast<std::uint8_t>(encode(value, kFp8E5M2)));
  }
}

double error_floor(DType dtype) {
  switch (dtype) {
    case DType::fp16:
      return 0x1p-24;
    case DType::fp8_e4m3:
      return 0x1p-9;
    case DType::bf16:
    case DType::fp32:
      return 0x1p-126;
    case DType::fp64:
      return 0x1p-1022;
    case DType::fp8_e5m2:
      return 0x1p-16;
    case DType::int8:
    case DType::int32:
    case DType::int64:
    case DType::uint8:
    case DType::boolean:
      return 0.5;
  }
  return 0;
}

double range_end(DType dtype) {
  switch (dtype) {
    case DType::fp16:
      return 0x1p16;  // what rounds to this number overflows to infinity
    case DType::fp8_e4m3:
      return 448;  // saturates
    case DType::fp8_e5m2:
      return 57344;
    default:
      return std::numeric_limits<double>::infinity();
  }
}

}  // namespace kernwright
