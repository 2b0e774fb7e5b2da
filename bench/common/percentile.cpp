#include "bench/common/percentile.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace kernwright {

double percentile(std::vector<double> values, double share) {
  const auto rank = std::ceil(share * static_cast<double>(values.size()));
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max(rank, 1.0)) - 1;
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace kernwright
