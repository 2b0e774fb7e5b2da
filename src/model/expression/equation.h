#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "model/expression/expression.h"
#include "model/expression/recording.h"

namespace kernwright {

/// Names with their values, as far as these are known, and names of expressions over others.
struct PartialScope {
  std::unordered_map<std::string, Number> values = {};
  std::unordered_map<std::string, Expression> derived = {};
  Recording* recording = nullptr;  ///< of the values, if they are recorded
};

/// The one name without a value that an equation settles, if it settles one.
struct Solution {
  std::string name = {};
  Number value = 0;
  std::int64_t divisor = 1;  ///< if it is not 1, no integer solves it: it leaves a remainder
};

/// An expression in a scope where some names have no value yet. Both outlive it. A condition that
/// is known reduces the expression to one of its branches.
class PartialExpression {
 public:
  PartialExpression(const Expression& expression, const PartialScope& scope)
      : program_(expression.program_), scope_(scope) {}

  /// Returns the value; nullopt if it depends on a name without one, or cannot be computed.
  std::optional<Number> value() const;

  /// Returns the same, and no recording hears of it.
  std::optional<std::int64_t> plain_value() const;

  /// Solves `expression = value`, in which one name is unknown, by inverting + - and *.
  Solution solve(const Number& value) const;

  /// Returns the text of what is left of it.
  std::string_view text() const;

  /// Returns the left factor, if a product is left of it.
  std::optional<Expression> left_factor() const;

 private:
  std::optional<std::int64_t> plain_value_of(int index) const;
  std::optional<Number> value_of(int index) const;
  Solution solve(int index, const Number& value) const;
  /// Returns the part of the expression at a node.
  Expression part(int index) const;
  int reduced(int index) const;

  std::shared_ptr<const detail::ExpressionProgram> program_;
  const PartialScope& scope_;
};

}  // namespace kernwright
