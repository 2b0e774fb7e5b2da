#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <kernwright/result.h>

namespace kernwright {

/// Arithmetic over named fp32 values that a problem brings along, "a * x + y": + - * /, the sign,
/// parentheses, decimal literals, and abs, exp, log, max, min, relu, sigmoid, silu, sqrt, tanh,
/// gelu_erf, gelu_tanh. It reaches kernels only as code printed from what was understood, never as
/// the text that was given.
class Formula {
 public:
  /// Errors: `invalid_argument` naming the text, the column and what was expected; a name that is
  /// not in `variables`; more than 256 characters, or 32 levels.
  static Result<Formula> parse(std::string_view text, std::span<const std::string> variables);

  /// Without spaces and needless parentheses: equal for texts that differ in these alone, and
  /// parsed again it gives itself. The order of operations is kept: a+(b+c) is not a+b+c.
  const std::string& text() const { return text_; }

  /// A C++ expression over the variables, for a `Math` that has a type `Value` with the operators
  /// and constructible from double, and the functions as static members.
  const std::string& code() const { return code_; }

  bool uses(std::string_view variable) const;

  /// Whether `name` calls a function, so that no variable can have it.
  static bool is_function(std::string_view name);

 private:
  Formula() = default;

  std::string text_;
  std::string code_;
  std::vector<std::string> used_;
};

}  // namespace kernwright
