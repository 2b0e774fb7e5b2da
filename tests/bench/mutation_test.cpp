#include "bench/common/mutation.h"

#include <gtest/gtest.h>

#include "support/text.h"

namespace kernwright {
namespace {

/// Returns "operator: find -> replace" of each change, with " index" for those that index.
std::vector<std::string> changes(std::string_view source) {
  std::vector<std::string> found;
  for (const Mutation& one : mutations_of_source(source)) {
    EXPECT_EQ(source.substr(one.at, one.find.size()), one.find);
    found.push_back(concat(to_string(one.made_by), ": ", one.find, " -> ", one.replace,
                           one.indexes ? " index" : ""));
  }
  return found;
}
using Changes = std::vector<std::string>;

TEST(MutationTest, OperatorsWithSpacesAroundThemAreChanged) {
  EXPECT_EQ(changes("const float y = a * -b;"), Changes{"arithmetic: * -> +"});
  EXPECT_EQ(changes("const bool y = a < b;"), Changes{"relation: < -> <= index"});
  EXPECT_EQ(changes("x[i + j]"), Changes{"arithmetic: + -> - index"});
  EXPECT_EQ(changes("const T* const p = &x, &y = f<T>(a << b);"), Changes{"arithmetic: << -> >>"});
}

TEST(MutationTest, AConditionAndAHeadIndexButNoLoopStepsBack) {
  EXPECT_EQ(
      changes("for (int i = 0; i < n; i += k + m) {}"),
      (Changes{"off_by_one: 0 -> 1 index", "relation: < -> <= index", "arithmetic: + -> - index"}));
  EXPECT_EQ(changes("if (a / b) {}"), Changes{"arithmetic: / -> * index"});
}

TEST(MutationTest, DecimalIntegersBecomeOneLarger) {
  EXPECT_EQ(changes("const long n = 9u;"), Changes{"off_by_one: 9u -> 10u index"});
  EXPECT_TRUE(changes("const float n = 9.0f, m = 0x9, k = 1e-9, l = 3f;").empty());
}

TEST(MutationTest, AssignmentsCallsAndJumpsAreDropped) {
  const auto dropped = [](std::string_view body) {
    return changes(concat("void f() { ", body, " }"));
  };
  EXPECT_EQ(dropped("x = y;"), Changes{"dropped_statement: x = y -> "});
  EXPECT_EQ(dropped("p->x[i].y += z;"),
            (Changes{"dropped_statement: p->x[i].y += z ->  index", "arithmetic: += -> -="}));
  EXPECT_EQ(dropped("if (a) store<T>(x, y);"), Changes{"dropped_statement: store<T>(x, y) -> "});
  EXPECT_EQ(dropped("for (;;) continue;"), Changes{"dropped_statement: continue ->  index"});
  for (const char* kept : {"int x = y;", "T x(y);", "return y;", "const T& x = y;"}) {
    EXPECT_TRUE(dropped(kept).empty()) << kept;
  }
}

TEST(MutationTest, WhatSynchronisesOrIsNoCodeIsLeft) {
  for (const char* kept :
       {"void f() { __syncthreads(); }", "void f() { mbarrier_wait(x, y); }",
        "void f() { asm volatile(\"add %0, %1 + 2;\" : \"=r\"(a) : \"r\"(b + c)); }",
        "// a + b = 2", "/* a + b */", "#pragma unroll 4", "#define A 1 + 2 \\\n + 3",
        "static_assert(a < 4, \"\");", "template <int N, bool A = (N < 4)>", "R\"(a + b)\"", "'+'",
        "const char* s = \"a + 2\";"}) {
    EXPECT_TRUE(changes(kept).empty()) << kept;
  }
}

TEST(MutationTest, PlacesHaveALineAndAColumn) {
  const std::vector<Mutation> found = mutations_of_source("// one\n\nint a = b + c;\n");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].line, 3);
  EXPECT_EQ(found[0].column, 11);
}

TEST(MutationTest, OfAManifestTheLaunchesAreChanged) {
  constexpr std::string_view kText = R"({"derived": {"a": "b + 1"},
  "launches": [{"grid": ["rows * SPLIT"], "block": ["64"], "kernel": "k_1"}]})";
  const std::vector<Mutation> found = mutations_of_manifest(kText);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(kText.substr(found[0].at, 1), "*");
  EXPECT_EQ(found[0].line, 2);
  EXPECT_EQ(found[1].find, "64");
  EXPECT_EQ(found[1].replace, "65");
  EXPECT_TRUE(found[1].indexes);
}

}  // namespace
}  // namespace kernwright
