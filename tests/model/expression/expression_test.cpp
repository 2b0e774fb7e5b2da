#include "model/expression/expression.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <iterator>
#include <vector>

#include "support/text.h"

namespace kernwright {
namespace {

Scope scope_of(std::initializer_list<std::pair<std::string, std::int64_t>> values) {
  Scope scope;
  for (const auto& [name, value] : values) scope.set(name, value);
  return scope;
}

const std::int64_t kMax = INT64_MAX;
constexpr std::string_view kNames[] = {"a", "b", "zero", "big"};

/// The value as text, or the message.
std::string value_of(std::string_view text) {
  const Result<Expression> expression = Expression::parse(text);
  if (!expression) return "refused: " + expression.error().message;
  const Result<std::int64_t> value =
      expression->evaluate(scope_of({{"a", 7}, {"b", -2}, {"zero", 0}, {"big", kMax}}));
  std::vector<std::size_t> places;
  for (const std::string& name : expression->names()) {
    const auto* const known = std::find(std::begin(kNames), std::end(kNames), name);
    places.push_back(known == std::end(kNames) ? PlacedExpression::kUnknown
                                               : static_cast<std::size_t>(known - kNames));
  }
  EXPECT_EQ(
      PlacedExpression(*expression, places).evaluate(std::vector<std::int64_t>{7, -2, 0, kMax}),
      value ? std::optional(*value) : std::nullopt)
      << text << ": by places it is the same";
  return value ? std::to_string(*value) : value.error().message;
}

TEST(ScopeTest, LaterValuesHideEarlierOnes) {
  const Scope scope = scope_of({{"x", 1}, {"y", 2}, {"x", 3}});
  EXPECT_EQ(scope.find("x"), 3);
  EXPECT_EQ(scope.find("z"), std::nullopt);
}

TEST(ExpressionTest, OperatorsBindAsInCpp) {
  EXPECT_EQ(value_of("1 + 2 * 3"), "7");
  EXPECT_EQ(value_of("(1 + 2) * 3"), "9");
  EXPECT_EQ(value_of("20 - 5 - 3"), std::to_string(20 - 5 - 3));
  EXPECT_EQ(value_of("100 / 7 % 4 * 2"), std::to_string(100 / 7 % 4 * 2));
  EXPECT_EQ(value_of("1 + 1 == 2 && 3 < 4 || 0"), "1");
  EXPECT_EQ(value_of("1 || 0 && 0"), "1");
  EXPECT_EQ(value_of("0 == 1 < 2"), std::to_string(0 == (1 < 2)));
  EXPECT_EQ(value_of("0 ? 1 : 0 ? 2 : 3"), "3");
  EXPECT_EQ(value_of("1 ? 0 ? 4 : 5 : 6"), "5");
  EXPECT_EQ(value_of("1 < 2 < 3"), "1");
  EXPECT_EQ(value_of("3 > 2 > 1"), "0");
  EXPECT_EQ(value_of("-a * b"), "14");
  EXPECT_EQ(value_of("!a + 1"), "1");
  EXPECT_EQ(value_of("- -a"), "7");
  EXPECT_EQ(value_of("a - -b"), "5");
  EXPECT_EQ(value_of("!!a"), "1");
  EXPECT_EQ(value_of("a!=b"), "1");
}

TEST(ExpressionTest, DivisionTruncatesTowardsZero) {
  EXPECT_EQ(value_of("-7 / 2"), "-3");
  EXPECT_EQ(value_of("-7 % 2"), "-1");
  EXPECT_EQ(value_of("7 / b"), "-3");
  EXPECT_EQ(value_of("7 % b"), "1");
}

TEST(ExpressionTest, FunctionsTakeTheirArguments) {
  EXPECT_EQ(value_of("ceil_div(7, 2)"), "4");
  EXPECT_EQ(value_of("ceil_div(big, 2)"), "4611686018427387904");
  EXPECT_EQ(value_of("round_up(a, 4)"), "8");
  EXPECT_EQ(value_of("min(a, b) + max(a, b)"), "5");
  EXPECT_EQ(value_of("is_pow2(64) + is_pow2(63) + is_pow2(0) + is_pow2(b)"), "1");
}

TEST(ExpressionTest, ConditionsShortCircuit) {
  EXPECT_EQ(value_of("0 && 1 / zero"), "0");
  EXPECT_EQ(value_of("1 || 1 / zero"), "1");
  EXPECT_EQ(value_of("a > 0 ? a : 1 / zero"), "7");
  EXPECT_EQ(value_of("zero ? 1 / zero : 2"), "2");
  EXPECT_EQ(value_of("2 && 3"), "1");
}

TEST(ExpressionTest, OverflowAndDivisionByZeroNameBothValues) {
  EXPECT_EQ(value_of("1 + big * 2"), "overflow in \"big * 2\": 9223372036854775807 * 2");
  EXPECT_EQ(value_of("big + 1"), "overflow in \"big + 1\": 9223372036854775807 + 1");
  EXPECT_EQ(value_of("-big - 2"), "overflow in \"-big - 2\": -9223372036854775807 - 2");
  EXPECT_EQ(value_of("-(-big - 1)"), "overflow in \"-(-big - 1)\"");
  EXPECT_EQ(value_of("(-big - 1) / -1"),
            "overflow in \"(-big - 1) / -1\": -9223372036854775808 / -1");
  EXPECT_EQ(value_of("(-big - 1) % -1"),
            "overflow in \"(-big - 1) % -1\": -9223372036854775808 % -1");
  EXPECT_EQ(value_of("a / zero"), "division by zero in \"a / zero\": 7 / 0");
  EXPECT_EQ(value_of("a % zero"), "division by zero in \"a % zero\": 7 % 0");
  EXPECT_EQ(value_of("round_up(big, 2)"),
            "overflow in \"round_up(big, 2)\": 9223372036854775807, 2");
  EXPECT_EQ(value_of("ceil_div(a, zero)"),
            "value out of range (needs a >= 0 and b > 0) in \"ceil_div(a, zero)\": 7, 0");
  EXPECT_EQ(value_of("ceil_div(b, 2)"),
            "value out of range (needs a >= 0 and b > 0) in \"ceil_div(b, 2)\": -2, 2");
  EXPECT_EQ(value_of("a + c"), "unknown name \"c\"");
}

// An expression without names has type int in C++, and there the pasted text would overflow.
TEST(ExpressionTest, LiteralsAloneOverflowAsInt) {
  EXPECT_EQ(value_of("65536 * 65536"), "overflow in \"65536 * 65536\": 65536 * 65536");
  EXPECT_EQ(value_of("2147483647 + (a > 0)"),
            "overflow in \"2147483647 + (a > 0)\": 2147483647 + 1");
  EXPECT_EQ(value_of("(-2147483647 - 1) % -1"),
            "overflow in \"(-2147483647 - 1) % -1\": -2147483648 % -1");
  EXPECT_EQ(value_of("-(-2147483647 - 1)"), "overflow in \"-(-2147483647 - 1)\"");
  EXPECT_EQ(value_of("2147483648 * 65536"), "140737488355328");
  EXPECT_EQ(value_of("a * 0 + 65536 * max(65536, 0)"), "4294967296");
  EXPECT_EQ(value_of("(1 ? 65536 : a) * 65536"), "4294967296");
}

TEST(ExpressionTest, WhatCppReadsOtherwiseIsRefused) {
  for (const char* text : {"",
                           " ",
                           "010",
                           "00",
                           "0x10",
                           "0b1",
                           "1u",
                           "1L",
                           "1'000",
                           "1.5",
                           "1e3",
                           ".5",
                           "a--b",
                           "a++b",
                           "--a",
                           "+a",
                           "a <=> b",
                           "a << 1",
                           "a >> 1",
                           "a & b",
                           "a | b",
                           "a ^ b",
                           "~a",
                           "a = b",
                           "a, b",
                           "a ? b",
                           "a ?: b",
                           "a b",
                           "(a",
                           "a)",
                           "()",
                           "a +",
                           "min(a)",
                           "min(a,",
                           "min",
                           "min a",
                           "f(a)",
                           "a(1)",
                           "sizeof(a)",
                           "true",
                           "and",
                           "a and b",
                           "not a",
                           "a\n+ b",
                           "a /* */",
                           "a // b",
                           "\"a\"",
                           "'a'",
                           "a.b",
                           "a->b",
                           "a::b",
                           "a[0]",
                           "#a",
                           "a\\",
                           "__a",
                           "_A",
                           "min(a, b, a)",
                           "is_pow2(a, b)",
                           "9223372036854775808",
                           "a ? b : ",
                           "a !b",
                           "a -"}) {
    EXPECT_FALSE(Expression::parse(text)) << text;
  }
}

TEST(ExpressionTest, ErrorsNameTheColumn) {
  EXPECT_EQ(value_of("a + "), "refused: column 5: expected a value, found the end");
  EXPECT_EQ(value_of("a $ b"), "refused: column 3: expected an operator or the end, found '$'");
  EXPECT_EQ(value_of("(a"), "refused: column 3: expected ')', found the end");
  EXPECT_EQ(value_of("a ? 1"), "refused: column 6: expected ':', found the end");
  EXPECT_EQ(value_of("min(a)"), "refused: column 6: expected ',', found ')'");
  EXPECT_EQ(value_of("1 + 010"), "refused: column 5: \"010\" would be octal in C++");
  EXPECT_EQ(value_of("1 + 1u"), "refused: column 5: \"1u\" is no decimal integer");
  EXPECT_EQ(value_of("while"), "refused: column 1: \"while\" is reserved by C++");
  EXPECT_EQ(value_of("99999999999999999999"),
            "refused: column 1: 99999999999999999999 does not fit 64 bits with a sign");
}

TEST(ExpressionTest, DepthAndLengthAreLimited) {
  EXPECT_EQ(value_of(std::string(20, '(') + "a" + std::string(20, ')')), "7");
  EXPECT_FALSE(Expression::parse(std::string(200, '(') + "a" + std::string(200, ')')));
  EXPECT_FALSE(Expression::parse(std::string(200, '!') + "a"));
  std::string chain = "a";
  for (int i = 0; i < 500; ++i) chain += " + a";
  EXPECT_EQ(value_of(chain), std::to_string(501 * 7));
  EXPECT_FALSE(Expression::parse(std::string(5000, ' ') + "a"));
}

TEST(ExpressionTest, TellsItsNamesOnceInOrder) {
  const Result<Expression> expression = Expression::parse("b * min(a, b) + (c ? a : 1)");
  ASSERT_TRUE(expression);
  EXPECT_EQ(expression->names(), (std::vector<std::string>{"b", "a", "c"}));
  EXPECT_EQ(expression->text(), "b * min(a, b) + (c ? a : 1)");
}

TEST(ExpressionTest, ExplainsWhyItIsZero) {
  const Scope scope = scope_of({{"a", 7}, {"b", -2}});
  const auto explain = [&](std::string_view text) {
    return Expression::parse(text)->explain_zero(scope);
  };
  EXPECT_EQ(explain("a <= 3"), "7 > 3");
  EXPECT_EQ(explain("a * 2 == b"), "14 != -2");
  EXPECT_EQ(explain("a > 0 && (b >= 0 && a == 7)"), "-2 < 0");
  EXPECT_EQ(explain("a == 1 || a == 2"), "7 != 1 and 7 != 2");
  EXPECT_EQ(explain("is_pow2(a)"), "\"is_pow2(a)\" is 0");
  EXPECT_EQ(explain("!a"), "\"!a\" is 0");
}

TEST(ExpressionTest, DefaultConstructedIsHarmless) {
  const Expression expression;
  EXPECT_FALSE(expression.evaluate(Scope()));
  EXPECT_EQ(expression.text(), "");
  EXPECT_TRUE(expression.names().empty());
}

TEST(ValueNameTest, KeywordsReservedNamesAndFunctionsAreNone) {
  for (const char* name : {"BM", "k", "_", "_x", "smem_bytes"}) EXPECT_TRUE(is_value_name(name));
  for (const char* name : {"int", "or", "x__y", "_Bm", "min", "is_pow2", "", "1a"}) {
    EXPECT_FALSE(is_value_name(name)) << name;
  }
}

}  // namespace
}  // namespace kernwright
