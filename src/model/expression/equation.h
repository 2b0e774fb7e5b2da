#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "model/expression/expression.h"

namespace kernwright {

/// Names with their values, as far as these are known, and names of expressions over others.
struct PartialScope {
  std::unordered_map<std::string, std::int64_t> values = {};
  std::unordered_map<std::string, Expression> derived = {};
};

/// The one name without a value that an equation settles, if it settles one.
struct Solution {
  std::string name = {};
  std::int64_t value = 0;
  std::int64_t divisor = 1;  ///< if it is not 1, no integer solves it: it leaves a remainder
};

/// An expression in a scope where some names have no value yet. Both outlive it. A condition that
/// is known reduces the expression to one of its branches.
class PartialExpression {
 public:
  PartialExpression(const Expression& expression, const PartialScope& scope)
      : program_(expression.program_), scope_(scope) {}

  /// Returns the value; nullopt if it depends on a name without one, or cannot be computed.
  std::optional<std::int64_t> value() const;

  /// Solves `expression = value`, in which one name is unknown, by inverting + - and *.
  Solution solve(std::int64_t value) const;

  /// Returns the text of what is left of it.
  std::string_view text() const;

  /// Returns the left factor, if a product is left of it.
  std::optional<Expression> left_factor() const;

 private:
  std::optional<std::int64_t> value_of(int index) const;
  Solution solve(int index, std::int64_t value) const;
  int reduced(int index) const;

  std::shared_ptr<const detail::ExpressionProgram> program_;
  const PartialScope& scope_;
};

}  // namespace kernwright
