#pragma once

#include <vector>

namespace kernwright {

/// Returns the median; `values` are finite and not empty.
double median(std::vector<double> values);

/// Returns the value rounded to `digits` significant digits. A value that is not finite, or too
/// small for that, becomes 0.
double rounded(double value, int digits);

}  // namespace kernwright
