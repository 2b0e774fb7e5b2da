#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "model/expression/expression_program.h"
#include "support/text.h"
#include <kernwright/result.h>

namespace kernwright::detail {

inline bool is_arithmetic(Op op) {
  return op == Op::add || op == Op::subtract || op == Op::multiply || op == Op::divide ||
         op == Op::remainder;
}

inline bool is_unary(Op op) {
  return op == Op::negate || op == Op::logical_not || op == Op::is_pow2;
}

/// Returns the symbol that is true between the operands of a false comparison, for messages.
inline std::string_view negated(Op op) {
  switch (op) {
    case Op::less:
      return ">=";
    case Op::less_equal:
      return ">";
    case Op::greater:
      return "<=";
    case Op::greater_equal:
      return "<";
    case Op::equal:
      return "!=";
    case Op::not_equal:
      return "==";
    default:
      return {};
  }
}

enum class Failure { none, overflow, zero_divisor, out_of_range };

inline bool beyond_int(bool narrow, std::int64_t value) {
  return narrow && (value < std::numeric_limits<std::int32_t>::min() ||
                    value > std::numeric_limits<std::int32_t>::max());
}

/// Computes an operation on two values, whose type in C++ is int if it is `narrow`.
inline Failure apply(Op op, bool narrow, std::int64_t a, std::int64_t b, std::int64_t& out) {
  bool overflow = false;
  switch (op) {
    case Op::add:
      overflow = __builtin_add_overflow(a, b, &out);
      break;
    case Op::subtract:
      overflow = __builtin_sub_overflow(a, b, &out);
      break;
    case Op::multiply:
      overflow = __builtin_mul_overflow(a, b, &out);
      break;
    case Op::divide:
    case Op::remainder:
      if (b == 0) return Failure::zero_divisor;
      // The quotient overflows, so C++ leaves the remainder undefined too.
      overflow = b == -1 && a == (narrow ? std::numeric_limits<std::int32_t>::min()
                                         : std::numeric_limits<std::int64_t>::min());
      if (!overflow) out = op == Op::divide ? a / b : a % b;
      break;
    case Op::ceil_div:
    case Op::round_up:
      if (a < 0 || b <= 0) return Failure::out_of_range;
      out = a / b + (a % b != 0 ? 1 : 0);
      if (op == Op::round_up) overflow = __builtin_mul_overflow(out, b, &out);
      break;
    case Op::min:
      out = std::min(a, b);
      break;
    case Op::max:
      out = std::max(a, b);
      break;
    case Op::less:
      out = a < b;
      break;
    case Op::less_equal:
      out = a <= b;
      break;
    case Op::greater:
      out = a > b;
      break;
    case Op::greater_equal:
      out = a >= b;
      break;
    case Op::equal:
      out = a == b;
      break;
    case Op::not_equal:
      out = a != b;
      break;
    default:
      break;
  }
  return overflow || beyond_int(narrow, out) ? Failure::overflow : Failure::none;
}

/// Evaluates a node, and those below it that its value depends on. Returns false after a failure.
/// `source` has the nodes, `node(index)`; `look_up(node, out)` for names, and `fail(failure, node,
/// a, b)`, which return false where there is no value.
template <typename Source>
bool evaluate(Source& source, int index, std::int64_t& out) {
  const auto& node = source.node(index);
  switch (node.op) {
    case Op::literal:
      out = node.value;
      return true;
    case Op::name:
      return source.look_up(node, out);
    case Op::negate: {
      std::int64_t a = 0;
      if (!evaluate(source, node.a, a)) return false;
      const Failure failure = apply(Op::subtract, node.narrow, 0, a, out);
      return failure == Failure::none || source.fail(failure, node, 0, a);
    }
    case Op::logical_not:
      if (!evaluate(source, node.a, out)) return false;
      out = out == 0;
      return true;
    case Op::logical_and:
      if (!evaluate(source, node.a, out)) return false;
      if (out != 0 && !evaluate(source, node.b, out)) return false;
      out = out != 0;
      return true;
    case Op::logical_or:
      if (!evaluate(source, node.a, out)) return false;
      if (out == 0 && !evaluate(source, node.b, out)) return false;
      out = out != 0;
      return true;
    case Op::conditional:
      if (!evaluate(source, node.a, out)) return false;
      return evaluate(source, out != 0 ? node.b : node.c, out);
    case Op::is_pow2:
      if (!evaluate(source, node.a, out)) return false;
      out = out > 0 && (out & (out - 1)) == 0;
      return true;
    default: {
      std::int64_t a = 0;
      std::int64_t b = 0;
      if (!evaluate(source, node.a, a) || !evaluate(source, node.b, b)) return false;
      const Failure failure = apply(node.op, node.narrow, a, b, out);
      return failure == Failure::none || source.fail(failure, node, a, b);
    }
  }
}

/// Evaluates the nodes of one program with values of names; remembers the first error.
template <typename Values>
class Evaluator {
 public:
  Evaluator(const ExpressionProgram& program, Values values) : program_(program), values_(values) {}

  /// Returns false after an error.
  bool evaluate(int index, std::int64_t& out) { return detail::evaluate(*this, index, out); }

  /// Returns why the node is 0: the values of the comparisons that made it 0.
  std::string explain(int index) {
    const Node& at = node(index);
    std::int64_t a = 0;
    std::int64_t b = 0;
    if (at.op == Op::logical_and) {
      return explain(evaluate(at.a, a) && a != 0 ? at.b : at.a);
    }
    if (at.op == Op::logical_or) return concat(explain(at.a), " and ", explain(at.b));
    if (negated(at.op).empty() || !evaluate(at.a, a) || !evaluate(at.b, b)) {
      return concat("\"", text_of(at), "\" is 0");
    }
    return concat(a, " ", negated(at.op), " ", b);
  }

  Error take_error() { return {ErrorCode::invalid_argument, std::move(error_)}; }

  // `detail::evaluate` asks for these.
  const Node& node(int index) const { return program_.nodes[static_cast<std::size_t>(index)]; }
  bool look_up(const Node& node, std::int64_t& out) {
    const std::string& name = program_.names[static_cast<std::size_t>(node.a)];
    const std::optional<std::int64_t> value = values_.find(name);
    if (!value) {
      error_ = concat("unknown name \"", name, "\"");
      return false;
    }
    out = *value;
    return true;
  }
  bool fail(Failure failure, const Node& node, std::int64_t a, std::int64_t b) {
    const std::string_view what = failure == Failure::overflow ? "overflow"
                                  : failure == Failure::zero_divisor
                                      ? "division by zero"
                                      : "value out of range (needs a >= 0 and b > 0)";
    error_ = concat(what, " in \"", text_of(node), "\"", operands(node, a, b));
    return false;
  }

 private:
  static std::string operands(const Node& node, std::int64_t a, std::int64_t b) {
    constexpr std::string_view kSymbols = "+-*/%";
    if (node.op == Op::negate) return {};
    if (!is_arithmetic(node.op)) return concat(": ", a, ", ", b);
    const char symbol =
        kSymbols[static_cast<std::size_t>(node.op) - static_cast<std::size_t>(Op::add)];
    return concat(": ", a, " ", symbol, " ", b);
  }

  std::string_view text_of(const Node& node) const {
    return std::string_view(program_.text).substr(node.begin, node.end - node.begin);
  }

  const ExpressionProgram& program_;
  Values values_;
  std::string error_;
};

}  // namespace kernwright::detail
