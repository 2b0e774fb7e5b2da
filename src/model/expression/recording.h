#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "model/expression/expression.h"

namespace kernwright {

class Recording;

/// An integer, either a constant or a value of a recording, which hears of all that is done with
/// it.
class Number {
 public:
  Number(std::int64_t value = 0) : value_(value) {}  // NOLINT(google-explicit-constructor)

  /// Returns the value, for messages: no recording hears what is done with it.
  std::int64_t value() const { return value_; }

  friend bool operator==(const Number& a, const Number& b);
  friend bool operator<(const Number& a, const Number& b);
  friend bool operator>(const Number& a, const Number& b) { return b < a; }
  friend bool operator<=(const Number& a, const Number& b) { return !(b < a); }
  friend bool operator>=(const Number& a, const Number& b) { return !(a < b); }

  /// Return nullopt for an overflow, and for a divisor that is not positive.
  friend std::optional<Number> add(const Number& a, const Number& b);
  friend std::optional<Number> subtract(const Number& a, const Number& b);
  friend std::optional<Number> divide(const Number& a, const Number& b);
  friend std::optional<Number> remainder(const Number& a, const Number& b);
  /// Returns the product, or the largest number if that is too large for what memory can have.
  friend Number times(const Number& a, const Number& b);

 private:
  friend class Recording;
  Number(std::int64_t value, Recording* recording, std::size_t place)
      : value_(value), recording_(recording), place_(place) {}

  std::int64_t value_;
  Recording* recording_ = nullptr;  ///< null: it is a constant
  std::size_t place_ = 0;
};

/// The steps of a computation on integers that are its inputs, so that it can be repeated with
/// others. As long as every comparison ends as it did, and every expression has a value or none as
/// it did, the computation takes the same way. It must not be moved while numbers of it exist.
class Recording {
 public:
  /// A longer recording is given up.
  static constexpr std::size_t kMostValues = 512;
  using Row = std::int64_t[kMostValues];

  /// Returns the next input. All inputs come first.
  Number input(std::int64_t value);
  /// Returns the value that `expression` has, or does not have, with these values of its names.
  std::optional<Number> evaluate(const Expression& expression,
                                 const std::vector<std::optional<Number>>& names,
                                 std::optional<std::int64_t> value);
  /// Returns the place of a number in the row of values.
  std::size_t place(const Number& number);
  /// Something that is not recorded decided.
  void give_up() { is_whole_ = false; }
  bool is_whole() const { return is_whole_; }

  /// Fills the row with the values for other inputs. Returns false if the computation takes another
  /// way. Allocates nothing.
  bool repeat(std::span<const std::int64_t> inputs, Row& row) const;

 private:
  friend bool operator==(const Number& a, const Number& b);
  friend bool operator<(const Number& a, const Number& b);
  friend std::optional<Number> add(const Number& a, const Number& b);
  friend std::optional<Number> subtract(const Number& a, const Number& b);
  friend std::optional<Number> divide(const Number& a, const Number& b);
  friend std::optional<Number> remainder(const Number& a, const Number& b);
  friend Number times(const Number& a, const Number& b);

  enum class Kind {
    literal,
    add,
    subtract,
    multiply,
    divide,
    remainder,
    expression,
    // These only decide, and have no place.
    is_equal,
    is_less,
    has_no_value
  };
  struct Step {
    Kind kind;
    std::size_t a = 0;  ///< places of operands, or the number of an expression
    std::size_t b = 0;
    std::int64_t value = 0;  ///< of a literal; 1 for a comparison that is true
    auto operator<=>(const Step&) const = default;
  };
  static Recording* of(const Number& a, const Number& b) {
    return a.recording_ != nullptr ? a.recording_ : b.recording_;
  }
  static std::optional<Number> computed(Kind kind, const Number& a, const Number& b,
                                        std::optional<std::int64_t> value);
  static bool compared(Kind kind, const Number& a, const Number& b, bool is_true);
  /// Returns the place of the step's value.
  std::size_t add_step(const Step& step);

  bool is_whole_ = true;
  std::size_t inputs_ = 0;
  std::size_t values_ = 0;
  std::vector<Step> steps_;
  std::vector<PlacedExpression> expressions_;
  std::map<Step, std::size_t> known_;  ///< each step once, and its place
  std::map<std::pair<std::string, std::vector<std::size_t>>, std::size_t> known_expressions_;
};

}  // namespace kernwright
