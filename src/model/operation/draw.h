#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <kernwright/dtype.h>

namespace kernwright {

/// The way in which the elements of a tensor are drawn. All draws use a counter-based generator:
/// element i depends only on the seed and i.
enum class DrawKind {
  normal,          ///< normal(0, 1), rounded to the dtype: realistic bit patterns
  small_integers,  ///< {-3..3}: sums are exact in fp32, so their order makes no difference
  signs,           ///< {-1, 0, 1}: the same for longer sums and narrower formats
  uniform,         ///< between two ends, which integers may equal
  permutation,     ///< each row holds 0 to columns - 1 in random order
  offsets,         ///< each row rises from 0 to an end in random steps
  constant,        ///< one value
  kernel           ///< by a kernel of the operation
};

std::string_view to_string(DrawKind kind);

/// A draw with its numbers. For integers `normal` means small integers, except for int8, which gets
/// the mean of two random codes. For unsigned dtypes small integers and signs are not negative, and
/// a bool is true if they are odd.
struct Draw {
  DrawKind kind = DrawKind::normal;
  double from = 0;  ///< for uniform; for constant the value
  double to = 0;    ///< for uniform and offsets

  bool operator==(const Draw&) const = default;
};

}  // namespace kernwright
