#pragma once

#include <cmath>
#include <concepts>
#include <limits>

namespace kernwright {

/// `value` rounded to nearest even, and taken no further than the ends of the integer; 0 of a NaN.
template <std::integral Integer>
Integer saturated(double value) {
  if (std::isnan(value)) return 0;
  const double rounded = std::nearbyint(value);
  // The largest of 64 bits is no double: what rounds to the next one is beyond.
  constexpr auto kMax = std::numeric_limits<Integer>::max();
  if (rounded >= static_cast<double>(kMax)) return kMax;
  if (rounded <= static_cast<double>(std::numeric_limits<Integer>::min())) {
    return std::numeric_limits<Integer>::min();
  }
  return static_cast<Integer>(rounded);
}

/// As C++ does, but false of a NaN.
inline bool to_bool(double value) { return value != 0 && !std::isnan(value); }

}  // namespace kernwright
