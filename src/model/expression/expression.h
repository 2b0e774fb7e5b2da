#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kernwright/result.h>

namespace kernwright {

namespace detail {
struct ExpressionProgram;
}

/// Values by name for the evaluation of expressions. Small: looked up linearly from the back, so
/// that later entries (derived values) are found first.
class Scope {
 public:
  void set(std::string name, std::int64_t value);
  std::optional<std::int64_t> find(std::string_view name) const;
  const std::vector<std::pair<std::string, std::int64_t>>& entries() const { return entries_; }

 private:
  std::vector<std::pair<std::string, std::int64_t>> entries_;
};

/// Whether `name` can name a value of the expression language and of the generated C++ alike: an
/// identifier that is no C++ keyword, no reserved name and none of the language's functions.
bool is_value_name(std::string_view name);

class PlacedExpression;

/// An integer expression: a strict subset of C++ constant expressions over 64-bit integers, so that
/// its text can be pasted into the generated kernel configuration. Operators `+ - * / %`,
/// comparisons, `&& || !`, `?:`, parentheses; functions ceil_div, round_up, min, max, is_pow2.
/// `&&`, `||` and `?:` short-circuit. Names are 64 bits wide; what is made of literals and
/// comparisons alone is `int`, as in C++, and overflows as one. Immutable and cheap to copy.
class Expression {
 public:
  /// Errors: `invalid_argument` with the column and what was expected.
  static Result<Expression> parse(std::string_view text);

  /// Errors: `invalid_argument` on an unknown name, overflow, or division by zero, naming the
  /// sub-expression and both values.
  Result<std::int64_t> evaluate(const Scope& scope) const;

  /// Why the expression is 0 in `scope`: the values on both sides of the comparison that failed,
  /// "262144 > 232448" for `a <= b`; of a conjunction, of the first part that is 0.
  std::string explain_zero(const Scope& scope) const;

  /// The text as given: valid C++ and valid to parse again.
  const std::string& text() const;

  /// The names it uses, each once, in order of appearance.
  const std::vector<std::string>& names() const;

 private:
  friend class PlacedExpression;
  std::shared_ptr<const detail::ExpressionProgram> program_;
};

/// An expression whose names are places in a row of values, for evaluating it many times: nothing
/// is looked up, and no error described.
class PlacedExpression {
 public:
  /// The place of a name that has no value.
  static constexpr std::size_t kUnknown = ~std::size_t{0};

  /// `places[i]` is that of `expression.names()[i]`.
  PlacedExpression(const Expression& expression, std::vector<std::size_t> places)
      : program_(expression.program_), places_(std::move(places)) {}

  /// Nothing where `Expression::evaluate` gives an error.
  std::optional<std::int64_t> evaluate(std::span<const std::int64_t> values) const;

 private:
  std::shared_ptr<const detail::ExpressionProgram> program_;
  std::vector<std::size_t> places_;
};

}  // namespace kernwright
