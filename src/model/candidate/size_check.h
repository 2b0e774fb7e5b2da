#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/candidate/candidate.h"
#include "model/candidate/choice.h"
#include "model/expression/expression.h"

namespace kernwright {

/// The values of a candidate, of which some depend on the sizes of some dims.
class SizedValues {
 public:
  /// A value that depends on them.
  struct Step {
    std::size_t place;
    PlacedExpression expression;
    bool zero_if_none;  ///< a value of the operation, which is 0 if it cannot be computed
  };

  /// `free` are dims of the candidate's problem. Dims with a default that its problem leaves out
  /// follow the others.
  SizedValues(const Candidate& valid, std::span<const std::string> free);

  /// Returns the place of a name among the first `count` values, where a later one hides an earlier
  /// one, or `PlacedExpression::kUnknown`.
  std::size_t find(std::string_view name, std::size_t count) const;
  /// Returns what is left to compute of an expression over the first `count` values.
  PlacedExpression fold(const Expression& expression, std::size_t count) const;
  PlacedExpression fold(const PlacedExpression& expression) const {
    return expression.folded(known_);
  }
  bool depends(std::size_t place) const { return !known_[place]; }
  std::size_t size() const { return known_.size(); }
  /// Returns the places of the free dims.
  const std::vector<std::size_t>& free() const { return free_; }
  const std::vector<Step>& steps() const { return steps_; }

 private:
  const Scope& scope_;
  std::vector<std::size_t> free_;
  std::vector<std::optional<std::int64_t>> known_;
  std::vector<Step> steps_;
};

/// The values that some expressions read, of all values of a candidate, as a row for other sizes:
/// the sizes, and then what is computed from them.
class SizedRow {
 public:
  static constexpr std::size_t kMost = 96;
  using Row = std::array<std::int64_t, kMost>;

  SizedRow() = default;
  /// `is_read` says which of all values the row must have.
  SizedRow(const SizedValues& values, std::vector<bool> is_read);

  /// Adds the values that an expression reads to `is_read`.
  static void read(const PlacedExpression& expression, std::vector<bool>& is_read);

  /// Returns the place in the row of a value that is read.
  std::size_t place(std::size_t of_all) const { return to_[of_all]; }
  /// Returns an expression over all values as one over the row.
  PlacedExpression placed(const PlacedExpression& expression) const {
    return expression.moved(to_);
  }
  /// Returns whether the row has room for its values.
  bool fits() const { return free_count_ + steps_.size() <= kMost; }
  /// Computes a row that fits. Returns false if a value does not exist at these sizes, or there are
  /// not as many sizes as free dims. Allocates nothing.
  bool fill(std::span<const std::int64_t> sizes, Row& row) const;

 private:
  std::size_t free_count_ = 0;
  std::vector<SizedValues::Step> steps_;  ///< whose values follow the sizes
  std::vector<std::size_t> to_;           ///< for each value its place in the row
};

/// Tells quickly at which sizes of some dims a candidate is valid: it computes only the values and
/// conditions that depend on these dims. Immutable; any thread may use it.
class SizeCheck {
 public:
  /// `valid` is a candidate that breaks no habit. For `free` see `SizedValues`.
  SizeCheck(const Candidate& valid, std::span<const std::string> free);

  /// Returns whether the operation takes the problem with these sizes of the free dims, the
  /// template applies, its rules hold, no habit is broken, and the candidate's bits are the same
  /// there. `make_candidate` may find more: it checks the limits of CUDA and the alignment of
  /// tensor maps too. Allocates nothing.
  bool holds(std::span<const std::int64_t> sizes) const;

  /// Returns the derived values that are compiled in and depend on the free dims. A configuration
  /// that names them is valid only where its bits are the same.
  const std::vector<std::pair<std::string, std::int64_t>>& compiled() const { return compiled_; }

 private:
  SizedRow row_;
  std::vector<PlacedExpression> conditions_;
  std::vector<std::pair<std::string, std::int64_t>> compiled_;
  std::vector<std::pair<std::size_t, std::int64_t>> fixed_;  ///< places, and what bits have there
};

/// Returns the candidate's choice with what is compiled in for sizes of the free dims, so that it
/// is valid only where its bits are the same: `matmul/stream ROWS=16 ... A_ROWS=2`.
Choice choice_of_bits(const Candidate& candidate, std::span<const std::string> free);

}  // namespace kernwright
