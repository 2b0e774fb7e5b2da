#include <algorithm>
#include <limits>

#include "model/expression/expression.h"
#include "model/expression/expression_program.h"
#include "model/expression/first_character.h"
#include "support/text.h"

namespace kernwright::detail {
namespace {

constexpr int kMaxDepth = 64;
/// Bounds the depth of a chain such as 1 + 1 + ..., which nests without parentheses.
constexpr std::size_t kMaxLength = 4096;

constexpr Function kFunctions[] = {{"ceil_div", Op::ceil_div, 2},
                                   {"round_up", Op::round_up, 2},
                                   {"min", Op::min, 2},
                                   {"max", Op::max, 2},
                                   {"is_pow2", Op::is_pow2, 1}};

struct BinaryOperator {
  std::string_view symbol;
  Op op;
  int precedence;
};

// Longer symbols come first because, as in C++, the longest one that fits is the operator.
constexpr BinaryOperator kBinaryOperators[] = {
    {"||", Op::logical_or, 1}, {"&&", Op::logical_and, 2}, {"==", Op::equal, 3},
    {"!=", Op::not_equal, 3},  {"<=", Op::less_equal, 4},  {">=", Op::greater_equal, 4},
    {"<", Op::less, 4},        {">", Op::greater, 4},      {"+", Op::add, 5},
    {"-", Op::subtract, 5},    {"*", Op::multiply, 6},     {"/", Op::divide, 6},
    {"%", Op::remainder, 6}};

/// Tokens of C++ that begin with an operator of the language, and that the language does not have.
constexpr std::string_view kForeignTokens[] = {"--", "++", "<=>", "<<", ">>", "->"};

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// Parses by recursive descent with precedence climbing. Each function returns the index of the
/// node that it made, or sets the error and returns kFailed.
class Parser {
 public:
  explicit Parser(std::string_view text) { program_.text = text; }

  Result<ExpressionProgram> parse() {
    if (program_.text.size() > kMaxLength) {
      return Error{ErrorCode::invalid_argument,
                   concat("expression of ", program_.text.size(), " characters > ", kMaxLength)};
    }
    skip_space();
    program_.root = parse_conditional();
    if (program_.root != kFailed && at_ != program_.text.size()) {
      expected("an operator or the end");
    }
    if (!error_.empty()) return Error{ErrorCode::invalid_argument, std::move(error_)};
    return std::move(program_);
  }

 private:
  static constexpr int kFailed = -1;

  int parse_conditional() {
    const Nesting nesting(*this);
    if (nesting.too_deep()) return kFailed;
    const std::size_t begin = at_;
    const int condition = parse_binary(1);
    if (condition == kFailed || !accept("?")) return condition;
    const int then = parse_conditional();
    if (then == kFailed) return kFailed;
    if (!accept(":")) return expected("':'");
    const int otherwise = parse_conditional();
    if (otherwise == kFailed) return kFailed;
    return add({.op = Op::conditional,
                .narrow = node(then).narrow && node(otherwise).narrow,
                .a = condition,
                .b = then,
                .c = otherwise,
                .begin = begin});
  }

  int parse_binary(int min_precedence) {
    const std::size_t begin = at_;
    int left = parse_unary();
    while (left != kFailed) {
      const BinaryOperator* binary = peek_binary();
      if (!binary || binary->precedence < min_precedence) return left;
      accept(binary->symbol);
      const int right = parse_binary(binary->precedence + 1);
      if (right == kFailed) return kFailed;
      const bool truth = binary->precedence <= 4;
      left = add({.op = binary->op,
                  .narrow = truth || (node(left).narrow && node(right).narrow),
                  .a = left,
                  .b = right,
                  .begin = begin});
    }
    return kFailed;
  }

  int parse_unary() {
    const Nesting nesting(*this);
    if (nesting.too_deep()) return kFailed;
    const std::size_t begin = at_;
    if (foreign_token()) return expected("a value");
    const bool negate = accept("-");
    if (!negate && !accept("!")) return parse_primary();
    const int operand = parse_unary();
    if (operand == kFailed) return kFailed;
    return add({.op = negate ? Op::negate : Op::logical_not,
                .narrow = !negate || node(operand).narrow,
                .a = operand,
                .begin = begin});
  }

  int parse_primary() {
    const std::size_t begin = at_;
    if (accept("(")) {
      const int inner = parse_conditional();
      if (inner == kFailed) return kFailed;
      return accept(")") ? inner : expected("')'");
    }
    const std::string_view word = take_word();
    if (word.empty()) return expected("a value");
    if (word.front() >= '0' && word.front() <= '9') return parse_literal(word, begin);
    if (const Function* function = find_function(word)) return parse_call(*function, begin);
    if (!is_value_name(word)) return fail(begin, concat("\"", word, "\" is reserved by C++"));
    auto& names = program_.names;
    const auto known = std::find(names.begin(), names.end(), word);
    const auto index = static_cast<int>(known - names.begin());
    if (known == names.end()) names.emplace_back(word);
    return add({.op = Op::name, .a = index, .begin = begin});
  }

  /// Accepts plain decimals only: C++ reads 010 as octal, and a suffix changes the type.
  int parse_literal(std::string_view word, std::size_t begin) {
    std::int64_t value = 0;
    for (const char c : word) {
      if (c < '0' || c > '9') return fail(begin, concat("\"", word, "\" is no decimal integer"));
      if (__builtin_mul_overflow(value, std::int64_t{10}, &value) ||
          __builtin_add_overflow(value, std::int64_t{c - '0'}, &value)) {
        return fail(begin, concat(word, " does not fit 64 bits with a sign"));
      }
    }
    if (word.size() > 1 && word.front() == '0') {
      return fail(begin, concat("\"", word, "\" would be octal in C++"));
    }
    return add({.op = Op::literal,
                .narrow = value <= std::numeric_limits<std::int32_t>::max(),
                .value = value,
                .begin = begin});
  }

  int parse_call(const Function& function, std::size_t begin) {
    if (!accept("(")) return expected(concat("'(' after ", function.name));
    int arguments[2] = {0, 0};
    for (int i = 0; i < function.arity; ++i) {
      if (i > 0 && !accept(",")) return expected("','");
      arguments[i] = parse_conditional();
      if (arguments[i] == kFailed) return kFailed;
    }
    if (!accept(")")) return expected("')'");
    return add({.op = function.op,
                .narrow = function.op == Op::is_pow2,
                .a = arguments[0],
                .b = arguments[1],
                .begin = begin});
  }

  /// Limits the depth of the parser's recursion, and so of the evaluator's.
  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxDepth) {
        parser_.fail(parser_.at_, concat("nested deeper than ", kMaxDepth));
      }
    }
    ~Nesting() { --parser_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    bool too_deep() const { return parser_.depth_ > kMaxDepth; }

   private:
    Parser& parser_;
  };

  std::string_view rest() const { return std::string_view(program_.text).substr(at_); }

  bool foreign_token() const {
    return std::any_of(std::begin(kForeignTokens), std::end(kForeignTokens),
                       [&](std::string_view token) { return rest().starts_with(token); });
  }

  const BinaryOperator* peek_binary() const {
    if (foreign_token()) return nullptr;
    for (const BinaryOperator& binary : kBinaryOperators) {
      if (rest().starts_with(binary.symbol)) return &binary;
    }
    return nullptr;
  }

  bool accept(std::string_view symbol) {
    if (!rest().starts_with(symbol)) return false;
    at_ += symbol.size();
    end_ = at_;
    skip_space();
    return true;
  }

  std::string_view take_word() {
    const std::size_t begin = at_;
    while (at_ < program_.text.size() && is_word(program_.text[at_])) ++at_;
    end_ = at_;
    const std::size_t length = at_ - begin;
    skip_space();
    return std::string_view(program_.text).substr(begin, length);
  }

  // A newline is not a space here, because the text is pasted after a #line directive.
  void skip_space() {
    while (at_ < program_.text.size() &&
           (program_.text[at_] == ' ' || program_.text[at_] == '\t')) {
      ++at_;
    }
  }

  const Node& node(int index) const { return program_.nodes[static_cast<std::size_t>(index)]; }

  int add(Node made) {
    made.end = end_;
    program_.nodes.push_back(made);
    return static_cast<int>(program_.nodes.size()) - 1;
  }

  int expected(std::string_view what) {
    const std::string found =
        rest().empty() ? "the end" : concat("'", first_character(rest()), "'");
    return fail(at_, concat("expected ", what, ", found ", found));
  }

  int fail(std::size_t where, std::string_view what) {
    if (error_.empty()) error_ = concat("column ", where + 1, ": ", what);
    return kFailed;
  }

  ExpressionProgram program_;
  std::size_t at_ = 0;
  std::size_t end_ = 0;  ///< just past the last token
  int depth_ = 0;
  std::string error_;
};

}  // namespace

const Function* find_function(std::string_view name) {
  for (const Function& function : kFunctions) {
    if (function.name == name) return &function;
  }
  return nullptr;
}

Result<ExpressionProgram> parse_expression(std::string_view text) { return Parser(text).parse(); }

}  // namespace kernwright::detail
