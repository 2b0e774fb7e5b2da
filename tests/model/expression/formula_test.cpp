#include "model/expression/formula.h"

#include <cmath>
#include <gtest/gtest.h>

namespace kernwright {
namespace {

const std::vector<std::string> kVariables = {"x", "y", "a"};

Formula parsed(std::string_view text) {
  const auto formula = Formula::parse(text, kVariables);
  EXPECT_TRUE(formula) << formula.error().message;
  return formula ? *formula : *Formula::parse("x", kVariables);
}

std::string error(std::string_view text) {
  const auto formula = Formula::parse(text, kVariables);
  return formula ? "understood as " + formula->text() : formula.error().message;
}

TEST(FormulaTest, NormalFormHasNeitherSpacesNorNeedlessParentheses) {
  EXPECT_EQ(parsed(" a * x + y ").text(), "a*x+y");
  EXPECT_EQ(parsed("((a*(x))+(y))").text(), "a*x+y");
  EXPECT_EQ(parsed("(x + y) + a").text(), "x+y+a");
  EXPECT_EQ(parsed("max( x,(y-1.50) )").text(), "max(x,y-1.5)");
  EXPECT_EQ(parsed("2.0*x+1e3+1.0e-7").text(), "2*x+1000+1e-07");
}

TEST(FormulaTest, NormalFormOfANumberIsNotOfDigitsAlone) {
  EXPECT_EQ(parsed("2").text(), "2.0");
  EXPECT_EQ(parsed("(0012)").text(), "12.0");
  EXPECT_EQ(parsed("2.0").text(), "2.0");
  EXPECT_EQ(parsed("2.0").code(), "Value(2.0)");
  EXPECT_EQ(parsed("-2").text(), "-2");
}

TEST(FormulaTest, IsEvaluatedInDoubles) {
  const auto value = [](std::string_view text) {
    return parsed(text).evaluate([](std::string_view name) {
      return name == "x" ? 3.0 : name == "y" ? -4.0 : 0.5;
    });
  };
  EXPECT_DOUBLE_EQ(value("1/sqrt(x*x+y*y)"), 0.2);
  EXPECT_DOUBLE_EQ(value("-(x-y)/a"), -14);
  EXPECT_DOUBLE_EQ(value("max(x,y)-min(x,y)+abs(y)"), 11);
  EXPECT_DOUBLE_EQ(value("relu(y)+exp(log(x))"), 3);
  EXPECT_DOUBLE_EQ(value("tanh(a)+sigmoid(a)"), std::tanh(0.5) + 1 / (1 + std::exp(-0.5)));
  EXPECT_DOUBLE_EQ(value("silu(a)"), 0.5 / (1 + std::exp(-0.5)));
  EXPECT_DOUBLE_EQ(value("gelu_erf(a)"), 0.25 * (1 + std::erf(0.5 / std::sqrt(2.0))));
  EXPECT_NEAR(value("gelu_tanh(a)"), value("gelu_erf(a)"), 1e-3);
}

TEST(FormulaTest, RefusesANormalFormThatItWouldNotReadAgain) {
  std::string text = "1e9";
  while (text.size() < 250) text += "*1e9";
  EXPECT_EQ(error(text), "formula of 377 characters in normal form > 256");
}

TEST(FormulaTest, NormalFormKeepsTheOrderOfOperations) {
  for (const char* text : {"x+(y+a)", "x-(y-a)", "x/(y/a)", "x*(y*a)", "(x+y)*a", "x*(y+a)",
                           "-(x+y)", "x-(-y)", "x*(-y)", "-(-x)", "(-x)*y+1"}) {
    const std::string once = parsed(text).text();
    EXPECT_EQ(once, text == std::string("(-x)*y+1") ? "-x*y+1" : text);
    EXPECT_EQ(parsed(once).text(), once);
    EXPECT_EQ(parsed(once).code(), parsed(text).code());
  }
}

TEST(FormulaTest, CodeIsPrintedFromWhatWasUnderstood) {
  EXPECT_EQ(parsed("a*x+y").code(), "((a * x) + y)");
  EXPECT_EQ(parsed("-x*2").code(), "((-x) * Value(2.0))");
  EXPECT_EQ(parsed("-(-x)").code(), "(-(-x))");
  EXPECT_EQ(parsed("silu(x)/max(y,0.5)").code(), "(Math::silu(x) / Math::max(y, Value(0.5)))");
  EXPECT_EQ(parsed("x-(-y)").code(), "(x - (-y))");
}

TEST(FormulaTest, KnowsWhatItUses) {
  const Formula formula = parsed("x*x+1");
  EXPECT_TRUE(formula.uses("x"));
  EXPECT_FALSE(formula.uses("y"));
}

TEST(FormulaTest, RefusesWhatItDoesNotUnderstandAtItsColumn) {
  EXPECT_EQ(error("a*q"),
            "\"a*q\": column 3: unknown name \"q\", known are x, y, a and the functions "
            "abs, exp, gelu_erf, gelu_tanh, log, max, min, relu, sigmoid, silu, sqrt, tanh");
  EXPECT_EQ(error("x+é"), "\"x+é\": column 3: expected a value, found 'é'");
  EXPECT_EQ(error("x€"), "\"x€\": column 2: expected an operator or the end, found '€'");
  EXPECT_EQ(error("x\xE2"), "\"x\xE2\": column 2: expected an operator or the end, found '\xE2'");
  EXPECT_EQ(error("a*"), "\"a*\": column 3: expected a value, found the end");
  EXPECT_EQ(error("x y"), "\"x y\": column 3: expected an operator or the end, found 'y'");
  EXPECT_EQ(error("(x"), "\"(x\": column 3: expected ')', found the end");
  EXPECT_EQ(error("max(x)"), "\"max(x)\": column 6: expected ',', found ')'");
  EXPECT_EQ(error("silu x"), "\"silu x\": column 6: expected '(', found 'x'");
  EXPECT_EQ(error("1e99*x"), "\"1e99*x\": column 1: \"1e99\" does not fit fp32");
  EXPECT_EQ(error("0x10"), "\"0x10\": column 2: expected an operator or the end, found 'x'");
  EXPECT_EQ(error("1.2.3"), "\"1.2.3\": column 4: expected an operator or the end, found '.'");
  EXPECT_EQ(error(""), "\"\": column 1: expected a value, found the end");
}

TEST(FormulaTest, NothingButItsOwnWordsReachesTheCode) {
  for (const char* text : {"x;y",   "x\ny",         "x/*y*/", "x//y",   "x,y",      "x[0]", "\"x\"",
                           "x?y:a", "Math::exp(x)", "x=y",    "asm(x)", "#include", "x\\",  "x&y",
                           "x%y",   "x+\ty",        "1f",     "inf",    "nan",      "+x"}) {
    EXPECT_FALSE(Formula::parse(text, kVariables)) << text;
  }
}

TEST(FormulaTest, SizeIsBounded) {
  std::string deep(40, '(');
  EXPECT_NE(error(deep + "x" + std::string(40, ')')).find("nested deeper than 32"),
            std::string::npos);
  EXPECT_NE(error(std::string(40, '-') + "x").find("nested deeper than 32"), std::string::npos);
  EXPECT_EQ(error(std::string(300, 'x')), "formula of 300 characters > 256");
}

}  // namespace
}  // namespace kernwright
