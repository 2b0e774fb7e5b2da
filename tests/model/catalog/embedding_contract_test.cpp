// The contract of the operation embedding.

#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <vector>

#include "model/candidate/candidate.h"
#include "support/text.h"
#include "tests/model/built_in_catalog.h"
#include "tests/model/samples.h"
#include "tests/model/valid_candidates.h"

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

// Whatever the width of a row is, its vectors make it up.
TEST_F(EmbeddingContractTest, RowsOfAnyWidthAreWholeVectors) {
  for (const char* dtype : {"bf16", "fp16", "fp32"}) {
    for (const int hidden : {1, 2, 3, 4, 6, 333, 1000, 4096}) {
      const auto problem =
          bind(concat("embedding tokens=9 hidden=", hidden, " vocabulary=70 dtype=", dtype));
      ASSERT_TRUE(problem) << problem.error().message;
      const auto all = valid_candidates(**catalog().kernel_template("embedding/streamed"), *problem,
                                        *find_profile("h200"));
      EXPECT_FALSE(all.empty()) << problem->text();
    }
  }
}

// Tokens beyond the ends of the table are drawn only in the set with NaN, in which a row may be
// NaN.
TEST_F(EmbeddingContractTest, EveryCombinationHasAReferenceAndItsInputs) {
  for (const char* lengths : {"none", "advance"}) {
    const auto problem =
        bind(concat("embedding tokens=3 hidden=40 vocabulary=70 dtype=fp16 lengths=", lengths));
    ASSERT_TRUE(problem) << problem.error().message;
    EXPECT_TRUE(make_reference_plan(*problem, h200()));
    const auto& kernels = *problem->operation().input_kernels;
    for (const std::string& kernel : {kernels.timing, kernels.exact, kernels.nan}) {
      ASSERT_FALSE(kernel.empty());
      const auto inputs = make_input_plan(*problem, kernel, h200());
      EXPECT_TRUE(inputs) << inputs.error().message;
    }
  }
}

}  // namespace
}  // namespace kernwright
