#include "model/expression/recording.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace kernwright {
namespace {

/// Returns nullopt for an overflow.
std::optional<std::int64_t> product(std::int64_t a, std::int64_t b) {
  std::int64_t value = 0;
  if (__builtin_mul_overflow(a, b, &value)) return std::nullopt;
  return value;
}
std::optional<std::int64_t> sum(std::int64_t a, std::int64_t b) {
  std::int64_t value = 0;
  if (__builtin_add_overflow(a, b, &value)) return std::nullopt;
  return value;
}
std::optional<std::int64_t> difference(std::int64_t a, std::int64_t b) {
  std::int64_t value = 0;
  if (__builtin_sub_overflow(a, b, &value)) return std::nullopt;
  return value;
}
std::optional<std::int64_t> quotient(std::int64_t a, std::int64_t b) {
  return b > 0 ? std::optional(a / b) : std::nullopt;
}
std::optional<std::int64_t> rest(std::int64_t a, std::int64_t b) {
  return b > 0 ? std::optional(a % b) : std::nullopt;
}

}  // namespace

bool operator==(const Number& a, const Number& b) {
  return Recording::compared(Recording::Kind::is_equal, a, b, a.value_ == b.value_);
}

bool operator<(const Number& a, const Number& b) {
  return Recording::compared(Recording::Kind::is_less, a, b, a.value_ < b.value_);
}

std::optional<Number> add(const Number& a, const Number& b) {
  return Recording::computed(Recording::Kind::add, a, b, sum(a.value_, b.value_));
}

std::optional<Number> subtract(const Number& a, const Number& b) {
  return Recording::computed(Recording::Kind::subtract, a, b, difference(a.value_, b.value_));
}

std::optional<Number> divide(const Number& a, const Number& b) {
  return Recording::computed(Recording::Kind::divide, a, b, quotient(a.value_, b.value_));
}

std::optional<Number> remainder(const Number& a, const Number& b) {
  return Recording::computed(Recording::Kind::remainder, a, b, rest(a.value_, b.value_));
}

Number times(const Number& a, const Number& b) {
  if (a.recording_ == nullptr && a.value_ == 1) return b;
  if (b.recording_ == nullptr && b.value_ == 1) return a;
  return Recording::computed(Recording::Kind::multiply, a, b, product(a.value_, b.value_))
      .value_or(Number(std::numeric_limits<std::int64_t>::max()));
}

bool Recording::compared(Kind kind, const Number& a, const Number& b, bool is_true) {
  if (Recording* const recording = of(a, b)) {
    recording->add_step({kind, recording->place(a), recording->place(b), is_true ? 1 : 0});
  }
  return is_true;
}

std::optional<Number> Recording::computed(Kind kind, const Number& a, const Number& b,
                                          std::optional<std::int64_t> value) {
  Recording* const recording = of(a, b);
  if (recording == nullptr) return value ? std::optional<Number>(*value) : std::nullopt;
  if (!value) {
    recording->give_up();
    return std::nullopt;
  }
  return Number(*value, recording,
                recording->add_step({kind, recording->place(a), recording->place(b)}));
}

Number Recording::input(std::int64_t value) {
  if (values_ == kMostValues) {
    give_up();
    return value;
  }
  ++inputs_;
  return {value, this, values_++};
}

std::size_t Recording::place(const Number& number) {
  if (number.recording_ != nullptr) return number.place_;
  return add_step({.kind = Kind::literal, .value = number.value_});
}

std::size_t Recording::add_step(const Step& step) {
  const auto [known, is_new] = known_.try_emplace(step, values_);
  if (!is_new) return known->second;
  if (values_ == kMostValues || steps_.size() == kMostValues) {
    give_up();
    return 0;
  }
  steps_.push_back(step);
  if (step.kind < Kind::is_equal) ++values_;
  return known->second;
}

std::optional<Number> Recording::evaluate(const Expression& expression,
                                          const std::vector<std::optional<Number>>& names,
                                          std::optional<std::int64_t> value) {
  const bool is_recorded = std::any_of(names.begin(), names.end(), [](const auto& number) {
    return number && number->recording_ != nullptr;
  });
  if (!is_recorded) return value ? std::optional<Number>(*value) : std::nullopt;
  if (expression.text() == expression.names().front()) return names.front();
  std::vector<std::size_t> places;
  for (const std::optional<Number>& number : names) {
    places.push_back(number ? place(*number) : PlacedExpression::kUnknown);
  }
  const auto [known, is_new] =
      known_expressions_.try_emplace({expression.text(), places}, expressions_.size());
  if (is_new) expressions_.emplace_back(expression, places);
  const std::size_t at =
      add_step({.kind = value ? Kind::expression : Kind::has_no_value, .a = known->second});
  return value ? std::optional(Number(*value, this, at)) : std::nullopt;
}

bool Recording::repeat(std::span<const std::int64_t> inputs, Row& row) const {
  if (!is_whole_ || inputs.size() != inputs_) return false;
  std::int64_t* next = std::copy(inputs.begin(), inputs.end(), row);
  const auto keep = [&next](std::optional<std::int64_t> value) {
    if (value) *next++ = *value;
    return value.has_value();
  };
  for (const Step& step : steps_) {
    bool goes_on = true;
    switch (step.kind) {
      case Kind::literal:
        goes_on = keep(step.value);
        break;
      case Kind::add:
        goes_on = keep(sum(row[step.a], row[step.b]));
        break;
      case Kind::subtract:
        goes_on = keep(difference(row[step.a], row[step.b]));
        break;
      case Kind::multiply:
        goes_on = keep(product(row[step.a], row[step.b]));
        break;
      case Kind::divide:
        goes_on = keep(quotient(row[step.a], row[step.b]));
        break;
      case Kind::remainder:
        goes_on = keep(rest(row[step.a], row[step.b]));
        break;
      case Kind::expression:
        goes_on = keep(expressions_[step.a].evaluate(row));
        break;
      case Kind::has_no_value:
        goes_on = !expressions_[step.a].evaluate(row);
        break;
      case Kind::is_equal:
        goes_on = (row[step.a] == row[step.b]) == (step.value != 0);
        break;
      case Kind::is_less:
        goes_on = (row[step.a] < row[step.b]) == (step.value != 0);
        break;
    }
    if (!goes_on) return false;
  }
  return true;
}

}  // namespace kernwright
