#include "service/sweep/worklist.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/catalog/catalog.h"
#include "model/files/embedded_files.h"
#include "model/operation/ranged_problem.h"
#include "tests/results.h"

namespace kernwright {

std::span<const EmbeddedFile> embedded_worklists();

namespace {

using ::testing::HasSubstr;

std::string message(std::string_view text) {
  const auto problems = parse_worklist(text, "w.json");
  return problems ? std::string("accepted") : problems.error().message;
}

TEST(WorklistTest, ReadsBothFormsOfAProblem) {
  const auto problems = must(parse_worklist(R"({"problems": [
    "vector_add n=8 dtype=bf16",
    {"operation": "matmul", "dims": {"m": 1, "n": 2, "k": 3}, "flags": {"dtype": "fp16"}}
  ]})",
                                            "w.json"));
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(problems[0].problem.text(), "vector_add n=8 dtype=bf16");
  EXPECT_EQ(problems[0].line, 2);
  EXPECT_EQ(problems[1].problem.text(), "matmul m=1 n=2 k=3 dtype=fp16");
  EXPECT_EQ(problems[1].line, 3);
}

TEST(WorklistTest, ALogOfLookupsIsOneToo) {
  const auto problems =
      must(parse_worklist(R"({"problem": "vector_add n=8 dtype=bf16", "sku": "h200"}
{"problem": "vector_add n=9 dtype=bf16", "sku": "h200"}
{"problem": "vector_add n=9 dtype=bf16", "sku": "h200", "count": 4}
{"problem": "vector_add n=10 dty
{"problem": "vector_add n=8 dtype=bf16", "sku": "h100_sxm"}
)",
                          "shapes.jsonl"));
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(problems[0].problem.text(), "vector_add n=9 dtype=bf16");
  EXPECT_EQ(problems[0].line, 2);
  EXPECT_EQ(problems[1].line, 1);
  EXPECT_EQ(message("{\"problem\": \"vector_add n=8\"}\n{\"problem\": \"vector_add 8\"}\n")
                .rfind("w.json:2: ", 0),
            0U);
}

TEST(WorklistTest, NamesFileLineAndWhatIsWrong) {
  EXPECT_EQ(message(R"([])").rfind("w.json:1:", 0), 0U);
  EXPECT_THAT(message("{\"problems\": [\n 3]}"),
              HasSubstr("w.json:2: a problem is a string or an object"));
  EXPECT_THAT(message("{\"problems\": [\n {\"operation\": \"matmul\", \"size\": 3}]}"),
              HasSubstr("unexpected \"size\""));
  EXPECT_THAT(message("{\"problems\": [{\"dims\": {}}]}"), HasSubstr("names no operation"));
  EXPECT_EQ(message("{\"problems\": [],\n \"more\": 1}").rfind("w.json:2: unknown key \"more\"", 0),
            0U);
  EXPECT_THAT(
      message("{\"problems\": [\n {\"operation\": \"matmul\", \"flags\": {\"bias\": [1]}}]}"),
      HasSubstr("w.json:2: flag bias must be a string, is integer"));
}

TEST(WorklistTest, AGateOverNoProblemIsAnError) {
  for (const std::string text :
       {"{\"problems\": []}", "{\"problems\": {}}", "{}", "[]", "3",
        "{\"problem\": [\"vector_add n=8\"]}", "{\"problem\": []}\n", "{\"count\": 3}\n"}) {
    EXPECT_THAT(parse_worklist(text, "w.json"), Fails(ErrorCode::not_found)) << text;
  }
  EXPECT_EQ(message("{\"problems\": []}"), "w.json has no problem");
  EXPECT_EQ(message("{\"problem\": [\"vector_add n=8\"]}"),
            "w.json:1: unknown key \"problem\" (did you mean problems?); a worklist is an object "
            "with the one key \"problems\", an array, or a log of lookups");
}

std::vector<std::string> texts(const std::vector<Problem>& problems) {
  std::vector<std::string> texts;
  for (const Problem& problem : problems) texts.push_back(problem.text());
  return texts;
}

TEST(WorklistTest, ListsAndRangesStandForAllCombinationsEachOnce) {
  const auto problems = must(parse_worklist(R"({"problems": [
    "matmul m=2 n=8 k=3 dtype=bf16",
    {"operation": "matmul", "dims": {"m": [1, 2, "4:8:x2"], "n": 8, "k": "3:4"},
     "flags": {"dtype": ["bf16", "fp16"]}}
  ]})",
                                            "w.json"));
  std::vector<std::string> all;
  for (const WorklistEntry& entry : problems) all.push_back(entry.problem.text());
  ASSERT_EQ(all.size(), 4U * 2 * 2);
  EXPECT_EQ(all[0], "matmul m=2 n=8 k=3 dtype=bf16");
  EXPECT_EQ(all[1], "matmul m=1 n=8 k=3 dtype=bf16");
  EXPECT_EQ(all[2], "matmul m=1 n=8 k=3 dtype=fp16");
  EXPECT_EQ(all[3], "matmul m=1 n=8 k=4 dtype=bf16");
  EXPECT_EQ(all.back(), "matmul m=8 n=8 k=4 dtype=fp16");
}

TEST(WorklistTest, ListsThatAreNoneAreNamedWithTheirLine) {
  const auto of_m = [](const std::string& m) {
    return message("{\"problems\": [\n {\"operation\": \"matmul\", \"dims\": {\"m\": " + m +
                   "}}]}");
  };
  EXPECT_THAT(of_m("[]"), HasSubstr("w.json:2: dim m has an empty list"));
  EXPECT_THAT(of_m("[1, \"4:2\"]"), HasSubstr("dim m: \"4:2\" is neither"));
  EXPECT_THAT(of_m("[1.5]"), HasSubstr("dim m must be an integer or a range"));
  EXPECT_EQ(of_m("[1, \"4:64:x2\"]"), "accepted");
}

TEST(WorklistTest, AListOfTooManyProblemsIsRefusedAtOnce) {
  EXPECT_THAT(message(R"({"problems": [{"operation": "matmul",
    "dims": {"m": "1:1000", "n": "1:1000", "k": "1:1000"}}]})"),
              HasSubstr("w.json:1: the worklist stands for more than 100000 problems"));
}

TEST(WorklistTest, TheLimitIsOfTheWholeList) {
  // 99,990 of one object.
  const std::string family =
      R"({"operation": "matmul", "dims": {"m": "1:9999", "n": "1:10", "k": 8}})";
  const auto with_singles = [&](int count) {
    std::string text = "{\"problems\": [" + family;
    for (int n = 1; n <= count; ++n) {
      text += ",\n\"vector_add n=" + std::to_string(n) + " dtype=bf16\"";
    }
    return text + "]}";
  };
  const auto full = must(parse_worklist(with_singles(10), "w.json"));
  EXPECT_EQ(full.size(), kMostProblems);
  EXPECT_THAT(message(with_singles(11)),
              HasSubstr("w.json:12: the worklist stands for more than 100000"));
  EXPECT_THAT(message("{\"problems\": [" + family + ",\n" + family + "]}"),
              HasSubstr("w.json:2: the worklist stands for more than 100000"));
}

TEST(WorklistTest, AListOfSizesIsRefusedBeforeItIsAsLargeAsItSays) {
  std::string sizes = "\"1:10000\"";
  for (int i = 0; i < 10; ++i) sizes += ",\n\"1:10000\"";
  EXPECT_THAT(message("{\"problems\": [{\"operation\": \"vector_add\", \"dims\": {\"n\": [" +
                      sizes + "]}}]}"),
              HasSubstr("w.json:11: the worklist stands for more than 100000"));
}

TEST(ShardTest, PartsCoverTheListOnceWhateverItsOrder) {
  std::vector<Problem> problems;
  for (int n = 1; n <= 23; ++n) problems.push_back(vector_add(n, DType::bf16));
  std::vector<std::string> covered;
  for (std::size_t index = 1; index <= 5; ++index) {
    const std::vector<std::string> part = texts(shard_of(problems, {index, 5}));
    EXPECT_GE(part.size(), 4U);
    EXPECT_LE(part.size(), 5U);
    std::vector<Problem> reversed(problems.rbegin(), problems.rend());
    EXPECT_EQ(texts(shard_of(reversed, {index, 5})), part);
    covered.insert(covered.end(), part.begin(), part.end());
  }
  std::sort(covered.begin(), covered.end());
  std::vector<std::string> all = texts(problems);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(covered, all);
}

TEST(ShardTest, IsReadFromText) {
  const Shard shard = must(parse_shard("2/8"));
  EXPECT_EQ(shard.index, 2U);
  EXPECT_EQ(shard.count, 8U);
  for (const char* text : {"", "2", "2/", "0/8", "9/8", "2/8x", "a/b", "-1/8"}) {
    EXPECT_FALSE(parse_shard(text)) << text;
  }
}

TEST(WorklistTest, OursNameProblemsThatThereAre) {
  const std::shared_ptr<const Catalog> catalog = Catalog::load({}).value();
  for (const EmbeddedFile& file : embedded_worklists()) {
    const auto entries = must(parse_worklist(file.content, file.path));
    for (const WorklistEntry& entry : entries) {
      const Operation& operation = *must(catalog->operation(entry.problem.operation()));
      // A problem without ranges is a family of one.
      const auto family = RangedProblem::bind(operation, entry.problem);
      EXPECT_TRUE(family) << file.path << ":" << entry.line << ": "
                          << (family ? "" : family.error().message);
    }
  }
}

}  // namespace
}  // namespace kernwright
