#pragma once

#include <vector>

namespace kernwright {

/// Returns the least of the values that is not below a share of them, 0.99 for the 99th percentile.
/// There is a value.
double percentile(std::vector<double> values, double share);

}  // namespace kernwright
