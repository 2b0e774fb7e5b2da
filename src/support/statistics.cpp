#include "support/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace kernwright {

double median(std::vector<double> values) {
  const auto n = values.size();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(n / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (n % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double rounded(double value, int digits) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const int exponent = static_cast<int>(std::floor(std::log10(std::abs(value))));
  const double scale = std::pow(10.0, digits - 1 - exponent);
  return std::isfinite(scale) && scale > 0 ? std::round(value * scale) / scale : 0;
}

}  // namespace kernwright
