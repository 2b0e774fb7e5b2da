#pragma once

#include <vector>

namespace kernwright {

/// The median; `values` are finite and not empty.
double median(std::vector<double> values);

}  // namespace kernwright
