#pragma once

#include <cmath>
#include <concepts>
#include <limits>

namespace kernwright {

/// Returns `value` rounded to nearest even and limited to the range of the integer; 0 for NaN.
template <std::integral Integer>
Integer saturated(double value) {
  if (std::isnan(value)) return 0;
  const double rounded = std::nearbyint(value);
  // The largest 64-bit integer is not a double: its conversion rounds to the next one, which is out
  // of range.
  constexpr auto kMax = std::numeric_limits<Integer>::max();
  if (rounded >= static_cast<double>(kMax)) return kMax;
  if (rounded <= static_cast<double>(std::numeric_limits<Integer>::min())) {
    return std::numeric_limits<Integer>::min();
  }
  return static_cast<Integer>(rounded);
}

/// Converts as C++ does, except that NaN is false.
inline bool to_bool(double value) { return value != 0 && !std::isnan(value); }

}  // namespace kernwright
