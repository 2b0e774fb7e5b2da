#include "service/worklist.h"

#include <gtest/gtest.h>

namespace kernwright {
namespace {

std::string message(std::string_view text) {
  const auto problems = parse_worklist(text, "w.json");
  return problems ? std::string("accepted") : problems.error().message;
}

TEST(WorklistTest, ReadsBothFormsOfAProblem) {
  const auto problems = parse_worklist(R"({"problems": [
    "vector_add n=8 dtype=bf16",
    {"operation": "matmul", "dims": {"m": 1, "n": 2, "k": 3}, "flags": {"dtype": "fp16"}}
  ]})",
                                       "w.json");
  ASSERT_TRUE(problems) << problems.error().message;
  ASSERT_EQ(problems->size(), 2U);
  EXPECT_EQ((*problems)[0].text(), "vector_add n=8 dtype=bf16");
  EXPECT_EQ((*problems)[1].text(), "matmul m=1 n=2 k=3 dtype=fp16");
}

TEST(WorklistTest, NamesFileLineAndWhatIsWrong) {
  EXPECT_EQ(message(R"([])").rfind("w.json:1:", 0), 0U);
  EXPECT_NE(message("{\"problems\": [\n 3]}").find("w.json:2: a problem is a string or an object"),
            std::string::npos);
  EXPECT_NE(message("{\"problems\": [\n {\"operation\": \"matmul\", \"size\": 3}]}")
                .find("unexpected \"size\""),
            std::string::npos);
  EXPECT_NE(message("{\"problems\": [{\"dims\": {}}]}").find("names no operation"),
            std::string::npos);
  EXPECT_NE(message("{\"problems\": [], \"more\": 1}").find("one member"), std::string::npos);
}

}  // namespace
}  // namespace kernwright
