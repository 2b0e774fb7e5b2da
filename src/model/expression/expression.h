#pragma once

#include <cstdint>
#include <functional>
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
enum class Op : std::uint8_t;
}  // namespace detail

/// Names and their values, for evaluating expressions. Later entries, such as derived values, hide
/// earlier ones. Copies share their names, so that they are cheap.
class Scope {
 public:
  /// Adds an entry. Allocates no name if this was made by `with` of a scope that has it there.
  void set(std::string_view name, std::int64_t value);
  std::optional<std::int64_t> find(std::string_view name) const;

  std::size_t size() const { return values_.size(); }
  /// Returns the place of the last entry of a name, or `PlacedExpression::kUnknown`.
  std::size_t place(std::string_view name) const;
  const std::string& name(std::size_t place) const { return names_->texts[place]; }
  std::span<const std::int64_t> values() const { return values_; }

  /// Returns a scope with the first of these names, as many as there are values.
  Scope with(std::span<const std::int64_t> values) const;
  /// Returns the first `count` entries.
  Scope first(std::size_t count) const { return with(values().first(count)); }

 private:
  struct Names {
    std::vector<std::string> texts;
    std::vector<std::uint32_t> tags;  ///< equal names have equal tags
  };

  std::shared_ptr<Names> names_;  ///< maybe more than there are values
  std::vector<std::int64_t> values_;
};

/// Returns whether `name` can be a name in the expression language and in generated C++: an
/// identifier that is not a C++ keyword, a reserved name or a function of the language.
bool is_value_name(std::string_view name);

class PlacedExpression;

/// An integer expression. The language is a strict subset of C++ constant expressions over 64-bit
/// integers, so its text can be pasted into the generated header of a kernel. It has the operators
/// `+ - * / %`, comparisons, `&& || !`, `?:` and parentheses, and the functions ceil_div, round_up,
/// min, max and is_pow2. `&&`, `||` and `?:` short-circuit. Names have 64 bits. As in C++,
/// expressions of literals and comparisons alone are `int` and overflow as such. Immutable and
/// cheap to copy.
class Expression {
 public:
  /// Parses an expression. Errors: `invalid_argument` with the column and what was expected.
  static Result<Expression> parse(std::string_view text);

  /// Computes the value. Errors: `invalid_argument` for an unknown name, an overflow or a division
  /// by zero, with the sub-expression and both values.
  Result<std::int64_t> evaluate(const Scope& scope) const;

  /// Computes the value with the values that `find` returns for names, nothing for one that has
  /// none. It asks only for names that the result depends on.
  using Find = std::function<std::optional<std::int64_t>(const std::string& name)>;
  Result<std::int64_t> evaluate(const Find& find) const;

  /// Returns why the expression is 0 in `scope`: the values on both sides of the comparison that is
  /// false, such as "262144 > 232448" for `a <= b`. For a conjunction it explains the first part
  /// that is 0.
  std::string explain_zero(const Scope& scope) const;

  /// Returns the text as given, which is valid C++ and can be parsed again.
  const std::string& text() const;

  /// Returns the names in it, each once, in the order of their first use.
  const std::vector<std::string>& names() const;

 private:
  friend class PartialExpression;
  friend class PlacedExpression;
  std::shared_ptr<const detail::ExpressionProgram> program_;
};

/// An expression whose names are replaced by places in a row of values. It is faster to evaluate
/// many times: it looks up no names, describes no errors, and is all in one place in memory.
class PlacedExpression {
 public:
  /// The place of a name that has no value.
  static constexpr std::size_t kUnknown = ~std::size_t{0};

  /// Takes the places of its names in `names`.
  PlacedExpression(const Expression& expression, const Scope& names);
  /// `places[i]` is the place of `expression.names()[i]`.
  PlacedExpression(const Expression& expression, std::span<const std::size_t> places);

  /// Returns nullopt if `Expression::evaluate` returns an error.
  std::optional<std::int64_t> evaluate(std::span<const std::int64_t> values) const;

  /// Returns the expression with everything computed that follows from the known values of a row.
  PlacedExpression folded(std::span<const std::optional<std::int64_t>> known) const;
  /// Returns the value if it depends on no place.
  std::optional<std::int64_t> constant() const;
  /// Returns the places that the value depends on.
  std::vector<std::size_t> places() const;
  /// Returns the expression over another row, where place p is place `to[p]`.
  PlacedExpression moved(std::span<const std::size_t> to) const;

 private:
  struct Node {
    detail::Op op;
    bool narrow;
    std::uint16_t a, b, c;  ///< operands by index
    std::int64_t value;     ///< of a literal; of a name its place
  };
  template <typename Find>
  struct Source;
  class Folding;
  PlacedExpression() = default;
  /// Adds the nodes of a program from one on. Returns the index of its node.
  std::uint16_t add(const detail::ExpressionProgram& program, int index,
                    std::span<const std::size_t> places);
  std::uint16_t add(const Node& node);

  std::vector<Node> nodes_;  ///< operands come before what they are of
};

/// Expressions that are placed in the values of scopes with the same names. Constants are read from
/// one small table, because families that take turns find little in the caches.
class PlacedExpressions {
 public:
  /// The expression outlives this, and is not moved.
  void add(const Expression& expression, PlacedExpression placed);
  /// Returns nullopt if the expression was not added or has no value.
  std::optional<std::int64_t> evaluate(const Expression& expression,
                                       std::span<const std::int64_t> values) const;

 private:
  static constexpr std::size_t kConstant = ~std::size_t{0};
  struct Slot {
    const Expression* expression = nullptr;
    std::size_t index = kConstant;  ///< in `placed_`
    std::int64_t value = 0;         ///< of a constant
  };

  /// Returns the slot of an expression, or the one for it. There are empty ones.
  std::size_t slot(const Expression& expression) const;

  std::vector<Slot> slots_;  ///< as many as a power of two, at most half of them full
  std::size_t count_ = 0;
  std::vector<PlacedExpression> placed_;
};

/// A scope from which expressions take their values, in their places as far as these are known.
class ValueSource {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): every name is looked up.
  ValueSource(const Scope& scope, const PlacedExpressions* placed = nullptr)
      : scope_(scope), placed_(placed) {}

  const Scope& scope() const { return scope_; }
  /// Errors: see `Expression::evaluate`.
  Result<std::int64_t> evaluate(const Expression& expression) const;

 private:
  const Scope& scope_;
  const PlacedExpressions* placed_;
};

}  // namespace kernwright
