#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kernwright/result.h>

namespace kernwright::detail {

enum class Op : std::uint8_t {
  literal,
  name,
  negate,
  logical_not,
  add,
  subtract,
  multiply,
  divide,
  remainder,
  less,
  less_equal,
  greater,
  greater_equal,
  equal,
  not_equal,
  logical_and,
  logical_or,
  conditional,
  ceil_div,
  round_up,
  min,
  max,
  is_pow2
};

/// One node of a parsed expression. If it is `narrow` its type in C++ is int or bool.
struct Node {
  Op op = Op::literal;
  bool narrow = false;
  std::int64_t value = 0;  ///< of a literal
  int a = 0;               ///< operands by index; for a name, its index in `names`
  int b = 0;
  int c = 0;
  std::size_t begin = 0;  ///< its part of the text
  std::size_t end = 0;
};

/// A parsed expression, whose nodes refer to each other by index.
struct ExpressionProgram {
  std::string text;
  std::vector<Node> nodes;
  std::vector<std::string> names;
  int root = 0;
};

struct Function {
  std::string_view name;
  Op op;
  int arity;
};

/// Finds the function called `name`, if the language has one.
const Function* find_function(std::string_view name);

/// Parses an expression. Errors: `invalid_argument` with the column and what was expected.
Result<ExpressionProgram> parse_expression(std::string_view text);

}  // namespace kernwright::detail
