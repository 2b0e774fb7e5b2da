#include "support/spelling.h"

#include <gtest/gtest.h>

namespace kernwright {
namespace {

const std::vector<std::string> kNames = {"matmul",  "rmsnorm", "layernorm", "h200",
                                         "a100_40", "a100_80", "m"};

TEST(SpellingTest, ASlipIsNear) {
  for (const char* given : {"matmull", "matml", "mtamul", "MatMul", "natmul"}) {
    EXPECT_EQ(did_you_mean(given, kNames), " (did you mean matmul?)") << given;
  }
  EXPECT_EQ(did_you_mean("H-200", kNames), " (did you mean h200?)");
}

TEST(SpellingTest, APartStandsForAllThatHaveIt) {
  EXPECT_EQ(did_you_mean("a100", kNames), " (did you mean a100_40 or a100_80?)");
  EXPECT_EQ(did_you_mean("norm", kNames), " (did you mean rmsnorm or layernorm?)");
}

TEST(SpellingTest, WhatIsFarIsNoHint) {
  for (const char* given : {"conv2d", "x", "", "k", "speed"}) {
    EXPECT_EQ(did_you_mean(given, kNames), "") << given;
  }
  EXPECT_EQ(did_you_mean("ab", {"abc", "abd", "abe", "abf"}), "") << "too many to be one";
  EXPECT_EQ(did_you_mean("m", {"l2"}), "");
  const std::string long_text(std::size_t{1} << 26, 'x');  // a table of slips takes gigabytes
  EXPECT_EQ(did_you_mean(long_text, kNames), "");
}

}  // namespace
}  // namespace kernwright
