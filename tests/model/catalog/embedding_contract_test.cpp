// The contract of the operation embedding.

#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <vector>

#include "tests/model/built_in_catalog.h"

namespace kernwright {
namespace {

class EmbeddingContractTest : public ::testing::Test {
 protected:
  static Result<BoundProblem> bind(std::string_view text) {
    return catalog().bind(Problem::parse(text).value());
  }
  static std::vector<std::string> names(const BoundProblem& problem) {
    std::vector<std::string> all;
    for (const TensorShape& shape : problem.shapes()) all.push_back(shape.name);
    return all;
  }
};

TEST_F(EmbeddingContractTest, OnlyWithAdvanceThereAreLengths) {
  const auto rows = bind("embedding tokens=3 hidden=40 vocabulary=70 dtype=bf16");
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ(names(*rows), (std::vector<std::string>{"tokens", "table", "x"}));
  EXPECT_EQ(rows->shapes()[1].extent, (std::vector<std::int64_t>{70, 40}));
  EXPECT_EQ(rows->shapes()[2].extent, (std::vector<std::int64_t>{3, 40}));
  EXPECT_EQ(rows->operation().bytes.evaluate(rows->scope()).value(), 3 * (2 * 80 + 4));
  const auto step = bind("embedding tokens=3 hidden=40 vocabulary=70 dtype=bf16 lengths=advance");
  ASSERT_TRUE(step) << step.error().message;
  EXPECT_EQ(names(*step),
            (std::vector<std::string>{"tokens", "table", "lengths", "x", "lengths_out"}));
  EXPECT_EQ(step->operation().bytes.evaluate(step->scope()).value(), 3 * (2 * 80 + 12));
}

TEST_F(EmbeddingContractTest, ATokenIsAnInt32) {
  EXPECT_TRUE(bind("embedding tokens=3 hidden=40 vocabulary=2147483647 dtype=bf16"));
  const auto wide = bind("embedding tokens=3 hidden=40 vocabulary=2147483648 dtype=bf16");
  ASSERT_FALSE(wide);
  EXPECT_NE(wide.error().message.find("a token is an int32"), std::string::npos)
      << wide.error().message;
}

}  // namespace
}  // namespace kernwright
