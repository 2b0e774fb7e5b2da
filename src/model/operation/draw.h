#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <kernwright/dtype.h>

namespace kernwright {

/// How elements are drawn. All are seeded and counter-based: element i of a tensor depends on the
/// seed and i alone.
enum class DrawKind {
  normal,          ///< normal(0, 1), rounded to the storage type: realistic bit patterns
  small_integers,  ///< {-3..3}: sums are exact in fp32, so any summation order gives equal results
  signs,           ///< {-1, 0, 1}: the same for longer sums and narrower formats
  uniform,         ///< between two ends: integers with both, floats
  permutation,     ///< each row holds 0 to columns - 1, in an order of its own
  offsets,         ///< each row rises from 0 to an end, with steps of any size
  constant         ///< one value
};

std::string_view to_string(DrawKind kind);

/// A draw with its numbers known. Integers have no normal distribution: they are small there. Where
/// there is no sign small integers and signs come without, and a bool is whether they are odd.
struct Draw {
  DrawKind kind = DrawKind::normal;
  double from = 0;  ///< of uniform; the constant
  double to = 0;    ///< of uniform and offsets

  bool operator==(const Draw&) const = default;
};

/// Whole numbers, both ends included.
struct IntegerRange {
  std::int64_t lowest = 0;
  std::int64_t highest = 0;
};

/// Whether elements are whole numbers; a bool is 0 or 1.
bool is_integer(DType dtype);

/// What an integer dtype can be drawn to hold, within what a double holds exactly; none of floats.
std::optional<IntegerRange> integer_range(DType dtype);

}  // namespace kernwright
