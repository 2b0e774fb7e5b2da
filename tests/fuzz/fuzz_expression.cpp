// Fuzzes expressions. A text is either refused, or has the value of a second, simpler evaluator,
// which splits the tokens at the operator that binds least instead of building a tree. A difference
// aborts.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/expression/expression.h"

namespace kernwright {
namespace {

using Tokens = std::span<const std::string_view>;

/// A value with the width that C++ gives it. Nullopt: the evaluation fails.
struct Value {
  std::int64_t value = 0;
  bool narrow = true;
};
using Evaluated = std::optional<Value>;

Scope values() {
  Scope scope;
  scope.set("a", 7);
  scope.set("b", -3);
  scope.set("zero", 0);
  scope.set("big", std::numeric_limits<std::int64_t>::max());
  scope.set("small", std::numeric_limits<std::int64_t>::min());
  return scope;
}

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

std::vector<std::string_view> tokens_of(std::string_view text) {
  std::vector<std::string_view> tokens;
  while (!text.empty()) {
    std::size_t size = 1;
    if (text[0] == ' ' || text[0] == '\t') {
      text.remove_prefix(1);
      continue;
    }
    if (is_word(text[0])) {
      while (size < text.size() && is_word(text[size])) ++size;
    } else {
      for (const std::string_view two : {"||", "&&", "==", "!=", "<=", ">="}) {
        if (text.starts_with(two)) size = 2;
      }
    }
    tokens.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return tokens;
}

Evaluated fitted(__int128 value, bool narrow) {
  const __int128 low =
      narrow ? std::numeric_limits<std::int32_t>::min() : std::numeric_limits<std::int64_t>::min();
  const __int128 high =
      narrow ? std::numeric_limits<std::int32_t>::max() : std::numeric_limits<std::int64_t>::max();
  if (value < low || value > high) return std::nullopt;
  return Value{static_cast<std::int64_t>(value), narrow};
}

Evaluated evaluate(Tokens tokens, const Scope& scope);

/// Returns whether the type of the tokens' value is int, evaluated or not: for `?:` the type of the
/// branch not taken counts.
bool is_narrow(Tokens tokens);

/// The index of the last token outside parentheses that is one of `operators` and has a left
/// operand; or of the first with `first`. -1 for none.
int find_operator(Tokens tokens, std::span<const std::string_view> operators, bool first = false) {
  int depth = 0;
  int found = -1;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == "(") ++depth;
    if (tokens[i] == ")") --depth;
    const bool binary = i > 0 && (tokens[i - 1] == ")" || is_word(tokens[i - 1].back()));
    if (depth != 0 || !binary) continue;
    for (const std::string_view symbol : operators) {
      if (tokens[i] == symbol && !(first && found >= 0)) found = static_cast<int>(i);
    }
  }
  return found;
}

std::size_t matching_colon(Tokens tokens, std::size_t question) {
  int depth = 0;
  int open = 0;
  for (std::size_t i = question + 1; i < tokens.size(); ++i) {
    if (tokens[i] == "(") ++depth;
    if (tokens[i] == ")") --depth;
    if (depth != 0) continue;
    if (tokens[i] == "?") ++open;
    if (tokens[i] == ":" && open-- == 0) return i;
  }
  std::abort();
}

constexpr std::string_view kQuestion[] = {"?"};
constexpr std::string_view kOr[] = {"||"};
constexpr std::string_view kAnd[] = {"&&"};
constexpr std::string_view kEquality[] = {"==", "!="};
constexpr std::string_view kRelation[] = {"<", "<=", ">", ">="};
constexpr std::string_view kSum[] = {"+", "-"};
constexpr std::string_view kProduct[] = {"*", "/", "%"};
constexpr std::span<const std::string_view> kTruths[] = {kOr, kAnd, kEquality, kRelation};
constexpr std::span<const std::string_view> kArithmetic[] = {kSum, kProduct};

bool is_narrow(Tokens tokens) {
  if (const int at = find_operator(tokens, kQuestion, true); at >= 0) {
    const std::size_t colon = matching_colon(tokens, static_cast<std::size_t>(at));
    return is_narrow(tokens.subspan(static_cast<std::size_t>(at) + 1,
                                    colon - static_cast<std::size_t>(at) - 1)) &&
           is_narrow(tokens.subspan(colon + 1));
  }
  for (const auto& level : kTruths) {
    if (find_operator(tokens, level) >= 0) return true;
  }
  for (const auto& level : kArithmetic) {
    if (const int at = find_operator(tokens, level); at >= 0) {
      return is_narrow(tokens.first(static_cast<std::size_t>(at))) &&
             is_narrow(tokens.subspan(static_cast<std::size_t>(at) + 1));
    }
  }
  if (tokens[0] == "-") return is_narrow(tokens.subspan(1));
  if (tokens[0] == "!") return true;
  if (tokens[0] == "(") return is_narrow(tokens.subspan(1, tokens.size() - 2));
  if (tokens.size() > 1) return tokens[0] == "is_pow2";
  return tokens[0][0] >= '0' && tokens[0][0] <= '9' &&
         std::stoll(std::string(tokens[0])) <= std::numeric_limits<std::int32_t>::max();
}

Evaluated evaluate_binary(std::string_view symbol, Value a, Value b) {
  const bool narrow = a.narrow && b.narrow;
  const __int128 x = a.value;
  const __int128 y = b.value;
  const auto truth = [](bool holds) { return Value{holds, true}; };
  if (symbol == "==") return truth(x == y);
  if (symbol == "!=") return truth(x != y);
  if (symbol == "<") return truth(x < y);
  if (symbol == "<=") return truth(x <= y);
  if (symbol == ">") return truth(x > y);
  if (symbol == ">=") return truth(x >= y);
  if (symbol == "+") return fitted(x + y, narrow);
  if (symbol == "-") return fitted(x - y, narrow);
  if (symbol == "*") return fitted(x * y, narrow);
  // C++ leaves the remainder undefined if the quotient does not fit.
  if (y == 0 || !fitted(x / y, narrow)) return std::nullopt;
  return fitted(symbol == "/" ? x / y : x % y, narrow);
}

Evaluated evaluate_call(Tokens tokens, const Scope& scope) {
  const Tokens inside = tokens.subspan(2, tokens.size() - 3);
  std::array<__int128, 2> arguments{};
  std::size_t count = 0;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= inside.size(); ++i) {
    if (i < inside.size()) {
      if (inside[i] == "(") ++depth;
      if (inside[i] == ")") --depth;
      if (depth != 0 || inside[i] != ",") continue;
    }
    const Evaluated argument = evaluate(inside.subspan(begin, i - begin), scope);
    if (!argument) return std::nullopt;
    arguments.at(count++) = argument->value;
    begin = i + 1;
  }
  const auto [a, b] = arguments;
  if (tokens[0] == "min") return fitted(a < b ? a : b, false);
  if (tokens[0] == "max") return fitted(a < b ? b : a, false);
  if (tokens[0] == "is_pow2") {
    for (int bit = 0; bit < 63; ++bit) {
      if (a == __int128{1} << bit) return Value{1, true};
    }
    return Value{0, true};
  }
  if (a < 0 || b <= 0) return std::nullopt;
  const __int128 quotient = (a + b - 1) / b;
  return fitted(tokens[0] == "ceil_div" ? quotient : quotient * b, false);
}

Evaluated evaluate(Tokens tokens, const Scope& scope) {
  if (const int found = find_operator(tokens, kQuestion, true); found >= 0) {
    const auto at = static_cast<std::size_t>(found);
    const std::size_t colon = matching_colon(tokens, at);
    const Evaluated condition = evaluate(tokens.first(at), scope);
    if (!condition) return std::nullopt;
    Evaluated chosen = condition->value != 0
                           ? evaluate(tokens.subspan(at + 1, colon - at - 1), scope)
                           : evaluate(tokens.subspan(colon + 1), scope);
    if (chosen) chosen->narrow = is_narrow(tokens);
    return chosen;
  }
  for (const auto& level : kTruths) {
    const int found = find_operator(tokens, level);
    if (found < 0) continue;
    const auto at = static_cast<std::size_t>(found);
    const Evaluated left = evaluate(tokens.first(at), scope);
    if (!left) return std::nullopt;
    if (tokens[at] == "||" && left->value != 0) return Value{1, true};
    if (tokens[at] == "&&" && left->value == 0) return Value{0, true};
    const Evaluated right = evaluate(tokens.subspan(at + 1), scope);
    if (!right) return std::nullopt;
    if (tokens[at] == "||" || tokens[at] == "&&") return Value{right->value != 0, true};
    return evaluate_binary(tokens[at], *left, *right);
  }
  for (const auto& level : kArithmetic) {
    const int found = find_operator(tokens, level);
    if (found < 0) continue;
    const auto at = static_cast<std::size_t>(found);
    const Evaluated left = evaluate(tokens.first(at), scope);
    const Evaluated right = left ? evaluate(tokens.subspan(at + 1), scope) : std::nullopt;
    return right ? evaluate_binary(tokens[at], *left, *right) : std::nullopt;
  }
  if (tokens[0] == "-" || tokens[0] == "!") {
    const Evaluated operand = evaluate(tokens.subspan(1), scope);
    if (!operand) return std::nullopt;
    if (tokens[0] == "!") return Value{operand->value == 0, true};
    return fitted(-__int128{operand->value}, operand->narrow);
  }
  if (tokens[0] == "(") return evaluate(tokens.subspan(1, tokens.size() - 2), scope);
  if (tokens.size() > 1) return evaluate_call(tokens, scope);
  if (tokens[0][0] >= '0' && tokens[0][0] <= '9') {
    return Value{std::stoll(std::string(tokens[0])), is_narrow(tokens)};
  }
  const std::optional<std::int64_t> value = scope.find(tokens[0]);
  return value ? Evaluated(Value{*value, false}) : std::nullopt;
}

}  // namespace
}  // namespace kernwright

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kernwright;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<Expression> expression = Expression::parse(text);
  if (!expression) return 0;
  static const Scope scope = values();
  const Result<std::int64_t> value = expression->evaluate(scope);
  const std::vector<std::string_view> tokens = tokens_of(text);
  // Splitting looks at every token once per operator.
  if (tokens.size() <= 256) {
    const Evaluated expected = evaluate(tokens, scope);
    if (value.has_value() != expected.has_value()) std::abort();
    if (value && *value != expected->value) std::abort();
  }
  if (value && *value == 0) static_cast<void>(expression->explain_zero(scope));
  const Result<Expression> again = Expression::parse(expression->text());
  if (!again || again->names() != expression->names()) std::abort();
  return 0;
}
