#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "support/random.h"

namespace kernwright::detail {

/// A stream of draws that is the same on every platform.
class RandomDraws {
 public:
  explicit RandomDraws(std::uint64_t seed) : seed_(seed) {}

  std::uint64_t bits() { return hash_at(seed_, next_++); }
  /// In [0, n); n is not 0 and far below 2^64.
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(bits() % n); }

  template <typename T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
  }

 private:
  std::uint64_t seed_;
  std::uint64_t next_ = 0;
};

}  // namespace kernwright::detail
