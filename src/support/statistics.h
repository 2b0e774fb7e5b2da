#pragma once

#include <vector>

namespace kernwright {

/// The finite median of values that are not empty.
double median(std::vector<double> values);

}  // namespace kernwright
