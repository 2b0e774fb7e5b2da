#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "support/names.h"
#include <kernwright/result.h>

namespace kernwright {

/// Maps sizes to one of a few choices, by a decision tree over the sizes. Immutable; any thread may
/// use it.
class DispatchTable {
 public:
  static constexpr std::size_t kMostChoices = 24;
  /// The choices, the one to take first.
  using Order = std::array<std::uint8_t, kMostChoices>;

  /// Makes a table from samples. `losses[c][i]` is how many times the best choice c takes at
  /// `sizes[i]`; at least 1. There is a sample, and at most `kMostChoices` choices. A split must
  /// take `least_gain` from the sum of the costs, where a loss of 1 % costs 0.0011: more where
  /// losses are not certain.
  static DispatchTable fit(const std::vector<std::vector<std::int64_t>>& sizes,
                           const std::vector<std::vector<double>>& losses,
                           double least_gain = 1e-4);

  /// Makes the table that takes the choices in their order at all sizes.
  static DispatchTable always(std::size_t choices);

  /// A table as it is written down: of each node the number of its dim, or -1 for a leaf; the
  /// largest size that goes on at the next node; the node for larger sizes, or the number of the
  /// leaf. `orders` has the choices of one leaf after another.
  struct Form {
    std::vector<int> dims;
    std::vector<std::int64_t> at_most;
    std::vector<int> next;
    std::vector<int> orders;

    friend bool operator==(const Form&, const Form&) = default;
  };
  Form form(std::size_t choices) const;
  /// Undoes `form`. Errors: `corrupt` if some sizes would lead nowhere, or a leaf is no order of
  /// the choices.
  static Result<DispatchTable> from(const Form& form, std::size_t dims, std::size_t choices);

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

void describe(auto& visitor, MaybeConst<DispatchTable::Form> auto& table) {
  visitor.field("dims", table.dims);
  visitor.field("at_most", table.at_most);
  visitor.field("next", table.next);
  visitor.field("orders", table.orders);
}

}  // namespace kernwright
