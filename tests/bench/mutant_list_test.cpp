#include "bench/common/mutant_list.h"

#include <gtest/gtest.h>

namespace kernwright {
namespace {

constexpr std::string_view kList = R"({
  "template": "vector_add/vectorized",
  "cases": {"tail": {"problem": "vector_add n=100 dtype=fp32", "configuration": {"THREADS": 128}}},
  "mutants": [
    {"name": "first", "kind": "indexing", "file": "kernel.cu", "on": ["tail"],
     "find": ["a;", "b;"], "replace": ["b;"], "fault": "a is missing"},
    {"name": "second", "kind": "synchronisation", "file": "reduce.cuh", "on": ["tail"],
     "find": ["a;"], "replace": [""], "occurrence": 2, "survives_because": "luck",
     "fault": "the second a is missing"}
  ]
})";

Result<MutantList> parse(std::string_view text) {
  const EmbeddedFile file{"list.json", text};
  return MutantList::parse(std::span(&file, 1));
}

std::string with(std::string_view from, std::string_view to) {
  std::string text(kList);
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(MutantListTest, ReadsEveryField) {
  const auto list = parse(kList);
  ASSERT_TRUE(list) << list.error().message;
  ASSERT_EQ(list->cases.size(), 1U);
  EXPECT_EQ(list->cases[0].kernel_template, "vector_add/vectorized");
  EXPECT_EQ(list->cases[0].problem.text(), "vector_add n=100 dtype=fp32");
  EXPECT_EQ(list->cases[0].changed.front().second, 128);
  ASSERT_EQ(list->mutants.size(), 2U);
  EXPECT_EQ(list->mutants[0].find, "a;\nb;");
  EXPECT_EQ(list->mutants[0].kind, MutantKind::indexing);
  EXPECT_EQ(list->mutants[1].occurrence, 2);
  EXPECT_EQ(list->mutants[1].file, "reduce.cuh");
  EXPECT_EQ(list->mutants[1].survives_because, "luck");
}

TEST(MutantListTest, RefusesWhatItDoesNotMean) {
  const std::pair<std::string, std::string> wrong[] = {
      {with("\"second\"", "\"first\""), "a second mutant first"},
      {with("\"indexing\"", "\"spelling\""), "synchronisation expected"},
      {with("[\"tail\"],\n     \"find\": [\"a;\", \"b;\"]", "[\"head\"],\n     \"find\": [\"a;\"]"),
       "no case \"head\""},
      {with("\"synchronisation\"", "\"arithmetic\""), "only faults of synchronisation may survive"},
      {with("n=100", "n"), "is not name=value"},
      {with("\"find\": [\"a;\"]", "\"find\": []"), "nothing to find"},
  };
  for (const auto& [text, message] : wrong) {
    const auto list = parse(text);
    ASSERT_FALSE(list) << message;
    EXPECT_TRUE(list.error().message.starts_with("list.json:")) << list.error().message;
    EXPECT_NE(list.error().message.find(message), std::string::npos) << list.error().message;
  }
}

TEST(MutantTest, ReplacesTheOnlyPlaceOrTheOneNamed) {
  const MutantList list = *parse(kList);
  EXPECT_EQ(*list.mutants[0].apply("x; a;\nb; y;"), "x; b; y;");
  EXPECT_EQ(*list.mutants[1].apply("a; b; a; a;"), "a; b;  a;");
}

TEST(MutantTest, NamesItselfWhereItsTextIsNotThereAsOftenAsSaid) {
  const MutantList list = *parse(kList);
  const auto twice = list.mutants[0].apply("a;\nb; a;\nb;");
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().message,
            "mutant first: its text is found 2 times in vector_add/vectorized, kernel.cu, not "
            "once");
  EXPECT_EQ(list.mutants[1].apply("a;").error().message,
            "mutant second: its text is found 1 times in vector_add/vectorized, reduce.cuh, not 2 "
            "times");
}

}  // namespace
}  // namespace kernwright
