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

/// Evaluates the nodes of one program; remembers the first error.
template <typename Values>
class Evaluator {
 public:
  Evaluator(const ExpressionProgram& program, Values values) : program_(program), values_(values) {}

  /// Returns false after an error.
  bool evaluate(int index, std::int64_t& out) {
    const Node& node = program_.nodes[static_cast<std::size_t>(index)];
    switch (node.op) {
      case Op::literal:
        out = node.value;
        return true;
      case Op::name:
        return look_up(node, out);
      case Op::negate:
        if (!evaluate(node.a, out)) return false;
        if (__builtin_sub_overflow(std::int64_t{0}, out, &out) || beyond_int(node, out)) {
          return fail("overflow", node, "");
        }
        return true;
      case Op::logical_not:
        if (!evaluate(node.a, out)) return false;
        out = out == 0;
        return true;
      case Op::logical_and:
        if (!evaluate(node.a, out)) return false;
        if (out != 0 && !evaluate(node.b, out)) return false;
        out = out != 0;
        return true;
      case Op::logical_or:
        if (!evaluate(node.a, out)) return false;
        if (out == 0 && !evaluate(node.b, out)) return false;
        out = out != 0;
        return true;
      case Op::conditional:
        if (!evaluate(node.a, out)) return false;
        return evaluate(out != 0 ? node.b : node.c, out);
      case Op::is_pow2:
        if (!evaluate(node.a, out)) return false;
        out = out > 0 && (out & (out - 1)) == 0;
        return true;
      default:
        return binary(node, out);
    }
  }

  /// Returns why the node is 0: the values of the comparisons that made it 0.
  std::string explain(int index) {
    const Node& node = program_.nodes[static_cast<std::size_t>(index)];
    std::int64_t a = 0;
    std::int64_t b = 0;
    if (node.op == Op::logical_and) {
      return explain(evaluate(node.a, a) && a != 0 ? node.b : node.a);
    }
    if (node.op == Op::logical_or) return concat(explain(node.a), " and ", explain(node.b));
    if (negated(node.op).empty() || !evaluate(node.a, a) || !evaluate(node.b, b)) {
      return concat("\"", text_of(node), "\" is 0");
    }
    return concat(a, " ", negated(node.op), " ", b);
  }

  Error take_error() { return {ErrorCode::invalid_argument, std::move(error_)}; }

 private:
  bool look_up(const Node& node, std::int64_t& out) {
    const std::string& name = program_.names[static_cast<std::size_t>(node.a)];
    const std::optional<std::int64_t> value = values_.find(name, node.a);
    if (!value) {
      if constexpr (Values::kTellsErrors) error_ = concat("unknown name \"", name, "\"");
      return false;
    }
    out = *value;
    return true;
  }

  bool binary(const Node& node, std::int64_t& out) {
    std::int64_t a = 0;
    std::int64_t b = 0;
    if (!evaluate(node.a, a) || !evaluate(node.b, b)) return false;
    bool overflow = false;
    switch (node.op) {
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
        if (b == 0) return fail("division by zero", node, operands(node, a, b));
        // The quotient overflows, so C++ leaves the remainder undefined too.
        overflow = b == -1 && a == (node.narrow ? std::numeric_limits<std::int32_t>::min()
                                                : std::numeric_limits<std::int64_t>::min());
        if (!overflow) out = node.op == Op::divide ? a / b : a % b;
        break;
      case Op::ceil_div:
      case Op::round_up: {
        if (a < 0 || b <= 0) {
          return fail("value out of range (needs a >= 0 and b > 0)", node, operands(node, a, b));
        }
        out = a / b + (a % b != 0 ? 1 : 0);
        if (node.op == Op::round_up) overflow = __builtin_mul_overflow(out, b, &out);
        break;
      }
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
    if (overflow || beyond_int(node, out)) return fail("overflow", node, operands(node, a, b));
    return true;
  }

  static bool beyond_int(const Node& node, std::int64_t value) {
    return node.narrow && (value < std::numeric_limits<std::int32_t>::min() ||
                           value > std::numeric_limits<std::int32_t>::max());
  }

  std::string operands(const Node& node, std::int64_t a, std::int64_t b) const {
    if constexpr (!Values::kTellsErrors) return {};
    constexpr std::string_view kSymbols = "+-*/%";
    if (!is_arithmetic(node.op)) return concat(": ", a, ", ", b);
    const char symbol =
        kSymbols[static_cast<std::size_t>(node.op) - static_cast<std::size_t>(Op::add)];
    return concat(": ", a, " ", symbol, " ", b);
  }

  bool fail(std::string_view what, const Node& node, std::string_view values) {
    if constexpr (Values::kTellsErrors) {
      error_ = concat(what, " in \"", text_of(node), "\"", values);
    }
    return false;
  }

  std::string_view text_of(const Node& node) const {
    return std::string_view(program_.text).substr(node.begin, node.end - node.begin);
  }

  const ExpressionProgram& program_;
  Values values_;
  std::string error_;
};

}  // namespace kernwright::detail
