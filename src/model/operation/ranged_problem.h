#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/operation/bound_problem.h"
#include "model/operation/operation.h"
#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright {

/// A dim whose size differs between the problems of a family, with its least and largest size.
struct FreeDim {
  std::string name;
  std::int64_t first = 1;
  std::int64_t last = 1;

  friend bool operator==(const FreeDim&, const FreeDim&) = default;
};

/// Returns true if the value of a flag is meant as a range: it begins with a digit and has dots.
bool is_range(std::string_view value);

/// Returns true if a problem as it was written has a range of sizes, `m=1..8192`.
bool has_range(const Problem& written);

/// Returns the sizes from `first` to `last` by which a range is looked at: both, and between them
/// the powers of two, and the quarters between these.
std::vector<std::int64_t> spread_sizes(std::int64_t first, std::int64_t last);

/// Returns the texts of the families that have all of the problems: those that differ in the sizes
/// of dims alone that kernels are not made for become one, with the range of each. One that differs
/// from no other is left as it is. They come in the order of their first problems.
std::vector<std::string> join_families(std::span<const BoundProblem> problems);

/// A family: a problem in which the sizes of some dims are ranges. Immutable. The operation
/// outlives it.
class RangedProblem {
 public:
  /// Reads the ranges, which are among the flags of `written`, and normalises the rest. Errors:
  /// `invalid_argument`, which names the range: it is not one, its dim is not bound by bucket, or
  /// its last problem is not accepted or leaves the dim out.
  static Result<RangedProblem> bind(const Operation& operation, const Problem& written);

  /// Returns the problem of the last size of each range.
  const BoundProblem& last() const { return last_; }
  /// Returns the ranges in the problem's order.
  const std::vector<FreeDim>& free() const { return free_; }
  /// Returns the canonical text, `matmul m=1..8192 n=6144 k=4096 dtype=bf16`.
  std::string text() const;

  /// Returns the problem of these sizes of the ranges. Errors: `invalid_argument` if the operation
  /// does not accept them, or it would have other dims than the family.
  Result<BoundProblem> at(std::span<const std::int64_t> sizes) const;
  /// Returns true if a problem has the family's dims and flags, whatever its sizes are.
  bool has_form(const Problem& normalized) const;
  /// Returns the sizes of the ranges of a problem, or nullopt if it is not of the family.
  std::optional<std::vector<std::int64_t>> sizes_of(const Problem& normalized) const;
  /// Returns true if all problems of the other family are of this one.
  bool includes(const RangedProblem& other) const;

 private:
  RangedProblem(BoundProblem last, std::vector<FreeDim> free)
      : last_(std::move(last)), free_(std::move(free)) {}

  BoundProblem last_;
  std::vector<FreeDim> free_;
};

}  // namespace kernwright
