#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <kernwright/dtype.h>

namespace kernwright {

enum class NumberKind { real, integer, boolean };

/// How a dtype is spelled, and how its elements are encoded. The table of these in
/// dtype_format.cpp is the only list of dtypes beside the enumeration. All that can be derived from
/// it is derived.
struct DTypeFormat {
  std::string_view name;       ///< on disk and in the CLI
  std::string_view cuda_type;  ///< in kernels, as <kernwright/math/types.cuh> declares it
  std::string_view aliases;    ///< other spellings, apart by spaces
  NumberKind kind = NumberKind::real;
  int bits = 0;
  bool is_signed = true;
  /// For real numbers only. Without infinities the largest exponent is one of finite numbers, and
  /// only the largest mantissa is a NaN there. A format that saturates never rounds to an infinity.
  int exponent_bits = 0;
  int mantissa_bits = 0;
  bool has_infinity = true;
  bool saturates = false;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};

const DTypeFormat& dtype_format(DType dtype);

/// Returns the dtype that a person means by `name`: our spelling in any case, or a name from
/// elsewhere (bfloat16, half, float8_e4m3fn). Keys and files have only our spelling, which
/// `parse_dtype` reads.
std::optional<DType> dtype_meant(std::string_view name);

/// Returns whether the elements are integers; a bool is 0 or 1.
bool is_integer(DType dtype);

/// A range of integers, both ends included.
struct IntegerRange {
  std::int64_t lowest = 0;
  std::int64_t highest = 0;
};

/// Returns the range in which elements of an integer dtype can be drawn, within the integers that a
/// double holds exactly. Returns nullopt for real numbers.
std::optional<IntegerRange> integer_range(DType dtype);

/// Returns the value of an element with these bits.
double decode(DType dtype, std::uint64_t bits);

/// Returns the bits of `value` in the dtype, in the low bytes, rounded to nearest even. Integers
/// and fp8 saturate, and a NaN is 0 as an integer.
std::uint64_t encode(DType dtype, double value);

/// Returns the largest finite number. For formats as wide as fp32 it is a power of two that leaves
/// room for a sum.
double largest(DType dtype);

/// Returns the spacing of `dtype` around zero, which is the part of an error bound that does not
/// shrink with the value. For fp16 and fp8 it is the smallest subnormal number. For the wider
/// formats it is the smallest normal number, since arithmetic may flush what is below it. For
/// integers it is the half that rounding to an integer may take, so that an integer result is still
/// met exactly.
double error_floor(DType dtype);

/// Returns the end of the range of `dtype` for comparisons. Results and references beyond it,
/// infinite ones too, count as if they were at the end. It is infinite for formats as wide as fp32.
double range_end(DType dtype);

/// Returns the unit of rounding of one stored element. References are fp32, so no format counts as
/// finer.
double rounding_unit(DType dtype);

/// Returns the end of the integers that a sum in this dtype holds exactly. References are fp32, so
/// no format of real numbers counts as finer.
double exact_integers(DType dtype);

}  // namespace kernwright
