#include <gtest/gtest.h>
#include <string>

#include "tests/results.h"
#include <kernwright/problem.h>

namespace kernwright {
namespace {

TEST(DTypeTest, SpellingsComeBack) {
  for (const DType dtype : kDTypes) {
    EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
  }
  EXPECT_EQ(parse_dtype("float"), std::nullopt);
  EXPECT_EQ(dtype_bits(DType::fp64), 64);
  EXPECT_EQ(bytes_of(3, DType::fp64), 24);
  EXPECT_EQ(bytes_of(3, DType::fp8_e4m3), 3);
}

TEST(ProblemTest, TextAndParseAreInverse) {
  const Problem problem = matmul({.m = 4096, .n = 6144, .k = 4096}, DType::bf16);
  EXPECT_EQ(problem.text(), "matmul m=4096 n=6144 k=4096 dtype=bf16");
  const Problem parsed = must(Problem::parse(problem.text()));
  EXPECT_EQ(parsed, problem);
  EXPECT_EQ(rmsnorm(2, 3, DType::fp16).text(), "rmsnorm rows=2 columns=3 dtype=fp16");
  EXPECT_EQ(vector_add(5, DType::fp32).text(), "vector_add n=5 dtype=fp32");
}

TEST(ProblemTest, ALongTextIsRefusedWithBothLengths) {
  const Result<Problem> longest = Problem::parse(std::string(65'536, 'a'));
  EXPECT_TRUE(longest) << longest.error().message;
  EXPECT_THAT(Problem::parse(std::string(65'537, 'a')),
              Fails("a problem of 65537 bytes; it may have 65536"));
}

TEST(ProblemTest, WithReplacesOrAdds) {
  const Problem problem = rmsnorm(2, 3, DType::fp16).with("weight", "none").with("dtype", "bf16");
  EXPECT_EQ(problem.text(), "rmsnorm rows=2 columns=3 dtype=bf16 weight=none");
}

TEST(ProblemTest, ParseNamesTheWordThatIsWrong) {
  const auto error = [](std::string_view text) { return Problem::parse(text).error().message; };
  const auto not_a_pair = [](const std::string& word) {
    return "\"" + word + "\" is not name=value; a value, such as a formula, has no spaces";
  };
  EXPECT_EQ(error("matmul m"), not_a_pair("m"));
  EXPECT_EQ(error("matmul m="), not_a_pair("m="));
  EXPECT_EQ(error("matmul =3"), not_a_pair("=3"));
  EXPECT_EQ(error("matmul 3m=3"), not_a_pair("3m=3"));
  EXPECT_EQ(error("matmul m=99999999999999999999"),
            "\"m=99999999999999999999\" does not fit 64 bits");
  EXPECT_EQ(error("m=3"), "\"m=3\": expected the operation's name first");
  EXPECT_FALSE(Problem::parse("  "));
}

TEST(ProblemTest, ExtraSpaceIsIgnored) {
  EXPECT_EQ(Problem::parse("  vector_add   n=5\tdtype=fp32 ").value().operation(), "vector_add");
}

}  // namespace
}  // namespace kernwright
