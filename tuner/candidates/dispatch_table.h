#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kernwright {

/// Maps sizes to one of a few choices, by a decision tree over the sizes. Immutable; any thread may
/// use it.
class DispatchTable {
 public:
  static constexpr std::size_t kMostChoices = 8;
  /// The choices, the one to take first.
  using Order = std::array<std::uint8_t, kMostChoices>;

  /// Makes a table from samples. `losses[c][i]` is how many times the best choice c takes at
  /// `sizes[i]`; at least 1. There is a sample, and at most `kMostChoices` choices.
  static DispatchTable fit(const std::vector<std::vector<std::int64_t>>& sizes,
                           const std::vector<std::vector<double>>& losses);

  /// Returns the order for these sizes, in which numbers beyond the choices have no meaning. Takes
  /// one comparison a level, of which there are few.
  const Order& order(std::span<const std::int64_t> sizes) const;

 private:
  struct Node {
    std::int32_t dim = -1;     ///< -1: a leaf
    std::uint32_t next = 0;    ///< the node for larger sizes, or the number of the leaf's order
    std::int64_t at_most = 0;  ///< the largest size that goes on at the next node
  };
  class Fitting;

  std::vector<Node> nodes_;
  std::vector<Order> orders_;
};

}  // namespace kernwright
