#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "support/random.h"

namespace kernwright {

struct Range {
  double low = 0;
  double high = 0;
};

/// Random numbers that are the same with every standard library.
class RandomStream {
 public:
  explicit RandomStream(std::uint64_t seed) : seed_(seed) {}

  std::uint64_t bits() { return hash_at(seed_, index_++); }
  /// In [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double uniform(Range range) { return range.low + (range.high - range.low) * uniform(); }
  /// Waiting time of a Poisson process.
  double exponential(double per_second) { return -std::log1p(-uniform()) / per_second; }
  std::size_t below(std::size_t count) {
    return static_cast<std::size_t>(uniform() * static_cast<double>(count));
  }
  /// Standard normal; two are made at a time (Marsaglia's polar method).
  double normal() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    double u = 0;
    double v = 0;
    double square = 0;
    do {
      u = 2 * uniform() - 1;
      v = 2 * uniform() - 1;
      square = u * u + v * v;
    } while (square >= 1 || square == 0);
    const double scale = std::sqrt(-2 * std::log(square) / square);
    spare_ = v * scale;
    has_spare_ = true;
    return u * scale;
  }

 private:
  std::uint64_t seed_;
  std::uint64_t index_ = 0;
  double spare_ = 0;
  bool has_spare_ = false;
};

}  // namespace kernwright
