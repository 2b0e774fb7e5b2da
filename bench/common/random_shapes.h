#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <kernwright/problem.h>

namespace kernwright {

/// Returns `count` sizes of products that nobody chose: m of 1 to 8,192, n of 256 to 65,536 and k
/// of 256 to 32,768, each evenly over its logarithm, of at most 2e12 operations. n and k are
/// multiples of `multiple`. Every tenth has odd sizes instead, if `multiple` is at most 8. The same
/// `seed` returns the same sizes everywhere, and a longer list begins with the shorter one.
std::vector<MatmulSize> random_shapes(int count, std::uint64_t seed, int multiple);

/// The spread of ratios: one of a hundred does not exceed `p1`, and five do not exceed `p5`.
struct RatioSpread {
  std::size_t count = 0;
  double lowest = 0, p1 = 0, p5 = 0, median = 0, mean = 0, geometric_mean = 0;
  double share_below = 0;  ///< of those below `kNotBehind`

  static constexpr double kNotBehind = 0.97;
  /// "60 shapes: lowest 0.93, p1 0.93, ..."
  std::string text() const;
};

/// All zeros for no ratios.
RatioSpread spread_of(std::vector<double> ratios);

}  // namespace kernwright
