#pragma once

#include <cmath>
#include <vector>

namespace kernwright {

/// 31 samples with this relative noise; those of two phases differ.
inline std::vector<double> around(double us, double noise, int phase) {
  std::vector<double> samples;
  samples.reserve(31);
  for (int i = 0; i < 31; ++i) samples.push_back(us * (1 + noise * std::sin(2.399 * i + phase)));
  return samples;
}

}  // namespace kernwright
