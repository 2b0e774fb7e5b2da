#include "bench/common/random_shapes.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>

#include "bench/common/percentile.h"

namespace kernwright {
namespace {

constexpr double kMostFlops = 2e12;
constexpr int kOddEvery = 10;
constexpr int kFinest = 8;  // multiples beside which odd sizes are drawn

/// Between `least` and `most`, evenly over the logarithm.
double draw(std::mt19937_64& random, double least, double most) {
  constexpr double kUnit = 0x1p-53;
  const double share = static_cast<double>(random() >> 11) * kUnit;
  return least * std::exp(share * std::log(most / least));
}

std::int64_t rounded(double size, int multiple) {
  return std::max<std::int64_t>(std::llround(size / multiple), 1) * multiple;
}

}  // namespace

std::vector<MatmulSize> random_shapes(int count, std::uint64_t seed, int multiple) {
  std::mt19937_64 random(seed);
  std::vector<MatmulSize> shapes;
  while (static_cast<int>(shapes.size()) < count) {
    const double m = draw(random, 1, 8192), n = draw(random, 256, 65536);
    const double k = draw(random, 256, 32768);
    if (2 * m * n * k > kMostFlops) continue;
    MatmulSize size{rounded(m, 1), rounded(n, multiple), rounded(k, multiple)};
    if (multiple <= kFinest && shapes.size() % kOddEvery == kOddEvery - 1) {
      size = {size.m | 1, rounded(n, 1) | 1, rounded(k, 1) | 1};
    }
    shapes.push_back(size);
  }
  return shapes;
}

RatioSpread spread_of(std::vector<double> ratios) {
  RatioSpread spread;
  if (ratios.empty()) return spread;
  std::sort(ratios.begin(), ratios.end());
  const auto count = static_cast<double>(ratios.size());
  double logarithms = 0;
  for (const double ratio : ratios) logarithms += std::log(ratio);
  spread.count = ratios.size();
  spread.lowest = ratios.front();
  spread.p1 = percentile(ratios, 0.01);
  spread.p5 = percentile(ratios, 0.05);
  spread.median = percentile(ratios, 0.5);
  spread.mean = std::accumulate(ratios.begin(), ratios.end(), 0.0) / count;
  spread.geometric_mean = std::exp(logarithms / count);
  spread.share_below =
      static_cast<double>(std::ranges::lower_bound(ratios, RatioSpread::kNotBehind) -
                          ratios.begin()) /
      count;
  return spread;
}

std::string RatioSpread::text() const {
  char line[200];
  std::snprintf(
      line, sizeof(line),
      "%zu shapes: lowest %.3f, p1 %.3f, p5 %.3f, median %.3f, mean %.3f (geometric %.3f), "
      "%.1f %% below %.2f",
      count, lowest, p1, p5, median, mean, geometric_mean, share_below * 100, kNotBehind);
  return line;
}

}  // namespace kernwright
