#include "model/expression/expression.h"

#include <algorithm>
#include <limits>

#include "model/expression/expression_program.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

using detail::Node;
using detail::Op;

constexpr std::string_view kKeywords[] = {"alignas",       "alignof",     "and",
                                          "and_eq",        "asm",         "auto",
                                          "bitand",        "bitor",       "bool",
                                          "break",         "case",        "catch",
                                          "char",          "char16_t",    "char32_t",
                                          "char8_t",       "class",       "co_await",
                                          "co_return",     "co_yield",    "compl",
                                          "concept",       "const",       "const_cast",
                                          "consteval",     "constexpr",   "constinit",
                                          "continue",      "decltype",    "default",
                                          "delete",        "do",          "double",
                                          "dynamic_cast",  "else",        "enum",
                                          "explicit",      "export",      "extern",
                                          "false",         "float",       "for",
                                          "friend",        "goto",        "if",
                                          "inline",        "int",         "long",
                                          "mutable",       "namespace",   "new",
                                          "noexcept",      "not",         "not_eq",
                                          "nullptr",       "operator",    "or",
                                          "or_eq",         "private",     "protected",
                                          "public",        "register",    "reinterpret_cast",
                                          "requires",      "return",      "short",
                                          "signed",        "sizeof",      "static",
                                          "static_assert", "static_cast", "struct",
                                          "switch",        "template",    "this",
                                          "thread_local",  "throw",       "true",
                                          "try",           "typedef",     "typeid",
                                          "typename",      "union",       "unsigned",
                                          "using",         "virtual",     "void",
                                          "volatile",      "wchar_t",     "while",
                                          "xor",           "xor_eq"};

bool is_arithmetic(Op op) {
  return op == Op::add || op == Op::subtract || op == Op::multiply || op == Op::divide ||
         op == Op::remainder;
}

/// Returns the symbol that is true between the operands of a false comparison, for messages.
std::string_view negated(Op op) {
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

/// Values that are looked up in a scope, with descriptions of errors.
struct ScopeValues {
  static constexpr bool kTellsErrors = true;
  const Scope& scope;

  std::optional<std::int64_t> find(const std::string& name, int) const { return scope.find(name); }
};

/// Values that a function gives, with descriptions of errors.
struct FoundValues {
  static constexpr bool kTellsErrors = true;
  const Expression::Find& find_value;

  std::optional<std::int64_t> find(const std::string& name, int) const { return find_value(name); }
};

/// Values at known places, without descriptions of errors.
struct PlacedValues {
  static constexpr bool kTellsErrors = false;
  std::span<const std::size_t> places;
  std::span<const std::int64_t> values;

  std::optional<std::int64_t> find(const std::string&, int index) const {
    const std::size_t place = places[static_cast<std::size_t>(index)];
    if (place == PlacedExpression::kUnknown) return std::nullopt;
    return values[place];
  }
};

/// Evaluates the nodes of one program; remembers the first error.
template <typename Values>
class Evaluator {
 public:
  Evaluator(const detail::ExpressionProgram& program, Values values)
      : program_(program), values_(values) {}

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

  const detail::ExpressionProgram& program_;
  Values values_;
  std::string error_;
};

template <typename Values>
Result<std::int64_t> result_of(const detail::ExpressionProgram& program, Values values) {
  Evaluator evaluator(program, values);
  std::int64_t value = 0;
  if (!evaluator.evaluate(program.root, value)) return evaluator.take_error();
  return value;
}

}  // namespace

void Scope::set(std::string name, std::int64_t value) {
  entries_.emplace_back(std::move(name), value);
}

std::optional<std::int64_t> Scope::find(std::string_view name) const {
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (entry->first == name) return entry->second;
  }
  return std::nullopt;
}

std::size_t RowNames::find(std::string_view name) const {
  for (std::size_t i = names_.size(); i-- > 0;) {
    if (names_[i] == name) return i;
  }
  return PlacedExpression::kUnknown;
}

PlacedExpression RowNames::place(const Expression& expression) const {
  std::vector<std::size_t> places;
  for (const std::string& name : expression.names()) places.push_back(find(name));
  return {expression, std::move(places)};
}

bool is_value_name(std::string_view name) {
  // C++ reserves names with two underscores, and those that begin with an underscore and a capital.
  const bool reserved = name.find("__") != std::string_view::npos ||
                        (name.size() > 1 && name[0] == '_' && name[1] >= 'A' && name[1] <= 'Z');
  return is_identifier(name) && !reserved && !detail::find_function(name) &&
         std::find(std::begin(kKeywords), std::end(kKeywords), name) == std::end(kKeywords);
}

Result<Expression> Expression::parse(std::string_view text) {
  KW_ASSIGN(detail::ExpressionProgram program, detail::parse_expression(text));
  Expression expression;
  expression.program_ = std::make_shared<const detail::ExpressionProgram>(std::move(program));
  return expression;
}

Result<std::int64_t> Expression::evaluate(const Scope& scope) const {
  if (!program_) return Error{ErrorCode::internal, "an expression that was never parsed"};
  return result_of(*program_, ScopeValues{scope});
}

Result<std::int64_t> Expression::evaluate(const Find& find) const {
  if (!program_) return Error{ErrorCode::internal, "an expression that was never parsed"};
  return result_of(*program_, FoundValues{find});
}

std::string Expression::explain_zero(const Scope& scope) const {
  if (!program_) return "it is empty";
  return Evaluator(*program_, ScopeValues{scope}).explain(program_->root);
}

std::optional<std::int64_t> PlacedExpression::evaluate(std::span<const std::int64_t> values) const {
  if (!program_) return std::nullopt;
  std::int64_t value = 0;
  if (!Evaluator(*program_, PlacedValues{places_, values}).evaluate(program_->root, value)) {
    return std::nullopt;
  }
  return value;
}

const std::string& Expression::text() const {
  static const auto& empty = *new std::string;
  return program_ ? program_->text : empty;
}

const std::vector<std::string>& Expression::names() const {
  static const auto& none = *new std::vector<std::string>;
  return program_ ? program_->names : none;
}

}  // namespace kernwright
