#pragma once

#include <vector>

namespace kernwright {

/// The median; `values` are finite and not empty.
double median(std::vector<double> values);

/// The value with so many significant digits. What is not finite, or too small for that, is 0.
double rounded(double value, int digits);

}  // namespace kernwright
