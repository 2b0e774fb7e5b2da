#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <kernwright/result.h>

namespace kernwright {

/// A formula over named fp32 values that a problem brings along, such as "a * x + y". It may have
/// + - * /, the sign, parentheses, decimal literals, and the functions abs, exp, log, max, min,
/// relu, sigmoid, silu, sqrt, tanh, gelu_erf and gelu_tanh. Kernels get code that is printed from
/// the parsed formula, never the text that was given.
class Formula {
 public:
  /// Parses a formula. Errors: `invalid_argument` with the text, the column and what was expected.
  /// Names that are not in `variables`, more than 256 characters and more than 32 levels are errors
  /// too.
  static Result<Formula> parse(std::string_view text, std::span<const std::string> variables);

  /// Returns the normal form, without spaces and needless parentheses. Texts that differ only in
  /// these have the same normal form, and parsing it returns the same form again. The order of
  /// operations is kept: a+(b+c) is not a+b+c.
  const std::string& text() const { return text_; }

  /// Returns a C++ expression over the variables. It needs a type `Math` that has the functions as
  /// static members, and a type `Math::Value` with the operators and a constructor from double.
  const std::string& code() const { return code_; }

  bool uses(std::string_view variable) const;

  /// Returns the value in fp64 for the values of the variables.
  double evaluate(const std::function<double(std::string_view)>& value_of) const;

  /// Returns whether `name` is a function, so that no variable can have this name.
  static bool is_function(std::string_view name);

 private:
  Formula() = default;

  std::string text_;
  std::string code_;
  std::vector<std::string> used_;
  std::function<double(const std::function<double(std::string_view)>&)> value_;
};

}  // namespace kernwright
