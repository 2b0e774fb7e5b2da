#include "model/expression/formula.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "model/expression/first_character.h"
#include "support/text.h"

namespace kernwright {
namespace {

constexpr int kMaxDepth = 32;
constexpr std::size_t kMaxLength = 256;

using Values = std::function<double(std::string_view)>;
/// Returns the value of a formula, or of a part of one, for the variables' values.
using Value = std::function<double(const Values&)>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// `value` of one argument takes it twice.
struct Function {
  std::string_view name;
  int arguments;
  double (*value)(double x, double y);
};
constexpr double kGeluTanh = 0.044715;
constexpr Function kFunctions[] = {
    {"abs", 1, [](double x, double) { return std::fabs(x); }},
    {"exp", 1, [](double x, double) { return std::exp(x); }},
    {"gelu_erf", 1,
     [](double x, double) { return x / 2 * (1 + std::erf(x / std::numbers::sqrt2)); }},
    {"gelu_tanh", 1,
     [](double x, double) {
       const double inner = std::sqrt(2 / std::numbers::pi) * (x + kGeluTanh * x * x * x);
       return x / 2 * (1 + std::tanh(inner));
     }},
    {"log", 1, [](double x, double) { return std::log(x); }},
    {"max", 2, [](double x, double y) { return std::isnan(x) || x > y ? x : y; }},
    {"min", 2, [](double x, double y) { return std::isnan(x) || x < y ? x : y; }},
    {"relu", 1, [](double x, double) { return x < 0 ? 0 : x; }},
    {"sigmoid", 1, [](double x, double) { return sigmoid(x); }},
    {"silu", 1, [](double x, double) { return x * sigmoid(x); }},
    {"sqrt", 1, [](double x, double) { return std::sqrt(x); }},
    {"tanh", 1, [](double x, double) { return std::tanh(x); }}};

constexpr int kSum = 1;
constexpr int kProduct = 2;
constexpr int kSign = 3;
constexpr int kPrimary = 4;

/// A part of a formula as normal text and as C++. `binds` is the strength of its operator, one of
/// the constants above.
struct Part {
  std::string text;
  std::string code;
  int binds = kPrimary;
  Value value = [](const Values&) { return 0.0; };
};

std::string names_of(std::span<const std::string> names) {
  std::string text;
  for (const std::string& name : names) text += concat(text.empty() ? "" : ", ", name);
  return text;
}

std::string names_of_functions() {
  std::string text;
  for (const Function& function : kFunctions) {
    text += concat(text.empty() ? "" : ", ", function.name);
  }
  return text;
}

bool is_word(char c) { return is_digit(c) || is_letter(c) || c == '_'; }

/// Parses by recursive descent. After an error it reads nothing more, and the parts are empty.
class Parser {
 public:
  Parser(std::string_view text, std::span<const std::string> variables)
      : text_(text), variables_(variables) {}

  Part parse() {
    if (text_.size() > kMaxLength) {
      error_ = concat("formula of ", text_.size(), " characters > ", kMaxLength);
      return {};
    }
    Part whole = parse_sum(0);
    if (ok() && peek() != '\0') expected("an operator or the end");
    if (!ok()) return {};
    // In the text of a problem a value of digits alone would be a dim.
    if (std::all_of(whole.text.begin(), whole.text.end(), is_digit)) whole.text += ".0";
    if (whole.text.size() > kMaxLength) {
      error_ =
          concat("formula of ", whole.text.size(), " characters in normal form > ", kMaxLength);
    }
    return whole;
  }

  bool ok() const { return error_.empty(); }
  std::string take_error() { return std::move(error_); }
  std::vector<std::string> take_used() { return std::move(used_); }

 private:
  Part parse_sum(int depth) {
    Part left = parse_product(depth);
    while (ok() && (peek() == '+' || peek() == '-')) {
      const char symbol = take();
      left = binary(left, symbol, parse_product(depth), kSum);
    }
    return left;
  }

  Part parse_product(int depth) {
    Part left = parse_sign(depth);
    while (ok() && (peek() == '*' || peek() == '/')) {
      const char symbol = take();
      left = binary(left, symbol, parse_sign(depth), kProduct);
    }
    return left;
  }

  Part parse_sign(int depth) {
    if (peek() != '-') return parse_primary(depth);
    take();
    if (++depth > kMaxDepth) return too_deep();
    const Part operand = parse_sign(depth);
    return {"-" + within(operand, kPrimary), concat("(-", operand.code, ")"), kSign,
            [x = operand.value](const Values& values) { return -x(values); }};
  }

  Part parse_primary(int depth) {
    if (++depth > kMaxDepth) return too_deep();
    if (peek() == '(') {
      take();
      Part inner = parse_sum(depth);
      expect(')');
      return inner;
    }
    if (is_digit(peek())) return parse_literal();
    const std::size_t begin = at_;
    std::string word;
    while (is_word(peek_here())) word += text_[at_++];
    if (word.empty()) {
      expected("a value");
      return {};
    }
    for (const Function& function : kFunctions) {
      if (function.name == word) return parse_call(function, depth);
    }
    if (std::find(variables_.begin(), variables_.end(), word) == variables_.end()) {
      fail(begin, concat("unknown name \"", word, "\", known are ", names_of(variables_),
                         " and the functions ", names_of_functions()));
      return {};
    }
    if (std::find(used_.begin(), used_.end(), word) == used_.end()) used_.push_back(word);
    return {word, word, kPrimary, [word](const Values& values) { return values(word); }};
  }

  Part parse_call(const Function& function, int depth) {
    Part call{concat(function.name, "("), concat("Math::", function.name, "("), kPrimary};
    expect('(');
    std::vector<Value> arguments;
    for (int i = 0; i < function.arguments && ok(); ++i) {
      if (i > 0) expect(',');
      const Part argument = parse_sum(depth);
      arguments.push_back(argument.value);
      call.text += concat(i > 0 ? "," : "", argument.text);
      call.code += concat(i > 0 ? ", " : "", argument.code);
    }
    expect(')');
    call.text += ')';
    call.code += ')';
    call.value = [function, arguments](const Values& values) {
      return function.value(arguments.front()(values), arguments.back()(values));
    };
    return call;
  }

  /// Reads digits with an optional fraction and exponent. They are printed in the shortest way.
  Part parse_literal() {
    const std::size_t begin = at_;
    double value = 0;
    const auto [end, status] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    at_ = static_cast<std::size_t>(end - text_.data());
    if (status != std::errc() || std::fabs(value) > std::numeric_limits<float>::max()) {
      fail(begin, concat("\"", text_.substr(begin, at_ - begin), "\" does not fit fp32"));
      return {};
    }
    if (is_word(peek_here()) || peek_here() == '.') {
      expected("an operator or the end");
      return {};
    }
    char shortest[32];
    const std::string text(shortest, std::to_chars(shortest, std::end(shortest), value).ptr);
    const bool integer = text.find_first_not_of("0123456789") == std::string::npos;
    return {text, concat("Value(", text, integer ? ".0" : "", ")"), kPrimary,
            [value](const Values&) { return value; }};
  }

  static std::string within(const Part& part, int binds) {
    return part.binds < binds ? concat("(", part.text, ")") : part.text;
  }

  /// Joins two parts by an operator, which groups to the left. A right part with a sign gets
  /// parentheses.
  static Part binary(const Part& left, char symbol, const Part& right, int binds) {
    const int stronger = right.binds == kSign ? kPrimary : binds + 1;
    return {concat(within(left, binds), symbol, within(right, stronger)),
            concat("(", left.code, " ", symbol, " ", right.code, ")"), binds,
            [x = left.value, y = right.value, symbol](const Values& values) {
              const double a = x(values);
              const double b = y(values);
              return symbol == '+' ? a + b : symbol == '-' ? a - b : symbol == '*' ? a * b : a / b;
            }};
  }

  char peek_here() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  char peek() {
    while (peek_here() == ' ') ++at_;
    return peek_here();
  }
  char take() { return text_[at_++]; }

  void expect(char symbol) {
    if (!ok()) return;
    if (peek() == symbol) {
      ++at_;
    } else {
      expected(concat("'", symbol, "'"));
    }
  }

  void expected(std::string_view what) {
    peek();
    const std::string_view found = first_character(text_.substr(at_));
    fail(at_, concat("expected ", what, ", found ",
                     found.empty() ? std::string("the end") : concat("'", found, "'")));
  }

  Part too_deep() {
    fail(at_, concat("nested deeper than ", kMaxDepth));
    return {};
  }

  void fail(std::size_t at, std::string_view what) {
    if (ok()) error_ = concat("\"", text_, "\": column ", at + 1, ": ", what);
  }

  std::string_view text_;
  std::span<const std::string> variables_;
  std::size_t at_ = 0;
  std::vector<std::string> used_;
  std::string error_;
};

}  // namespace

Result<Formula> Formula::parse(std::string_view text, std::span<const std::string> variables) {
  Parser parser(text, variables);
  Part whole = parser.parse();
  if (!parser.ok()) return Error{ErrorCode::invalid_argument, parser.take_error()};
  Formula formula;
  formula.text_ = std::move(whole.text);
  formula.code_ = std::move(whole.code);
  formula.used_ = parser.take_used();
  formula.value_ = std::move(whole.value);
  return formula;
}

bool Formula::is_function(std::string_view name) {
  return std::any_of(std::begin(kFunctions), std::end(kFunctions),
                     [&](const Function& function) { return function.name == name; });
}

double Formula::evaluate(const std::function<double(std::string_view)>& value_of) const {
  return value_(value_of);
}

bool Formula::uses(std::string_view variable) const {
  return std::find(used_.begin(), used_.end(), variable) != used_.end();
}

}  // namespace kernwright
