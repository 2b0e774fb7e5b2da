#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "model/candidate/candidate.h"
#include "tests/model/built_in_catalog.h"
#include "tests/model/samples.h"
#include "tests/results.h"

namespace kernwright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<BoundProblem> bind(const std::string& text) {
  return catalog().bind(Problem::parse(text).value());
}

/// The templates that take a problem.
std::vector<std::string> templates_for(const std::string& text) {
  const BoundProblem problem = bind(text).value();
  std::vector<std::string> names;
  for (const KernelTemplate* one : catalog().templates_of(problem.operation().name)) {
    if (applies(*one, problem, h200())) names.push_back(one->name);
  }
  return names;
}

TEST(LargeSizesTest, SizesThatAreCountedIn32BitsAreRefusedWithTheLimit) {
  for (const auto& [problem, limit] : std::vector<std::pair<std::string, std::string>>{
           {"bias_activation rows=1 columns=2147487744 dtype=bf16 activation=none",
            "columns <= 2147483136"},
           {"gated_activation rows=1 columns=2147487744 dtype=bf16", "columns <= 2147483136"},
           {"argmax rows=1 columns=2147487744 dtype=bf16", "columns <= 2147483647"},
           {"embedding tokens=1 hidden=2147487744 vocabulary=1 dtype=bf16", "hidden <= 2147479552"},
           {"embedding tokens=1 hidden=8 vocabulary=2147487744 dtype=bf16",
            "vocabulary <= 2147483647"},
           {"rope tokens=1 heads=33554432 kv_heads=8 head_dim=128 dtype=bf16", "<= 2147483647"},
           {"kv_append batch=1 kv_heads=33554432 q_len=1 kv_len=1 head_dim=128 dtype=bf16",
            "<= 2147483647"}}) {
    EXPECT_THAT(bind(problem), Fails(ErrorCode::invalid_argument, HasSubstr(limit))) << problem;
  }
}

TEST(LargeSizesTest, ElementsAreCountedIn64Bits) {
  for (const char* const problem :
       {"elementwise n=4294967304 dtype=bf16 formula=x", "vector_add n=4294967304 dtype=bf16",
        "bias_activation rows=131072 columns=32776 dtype=bf16",
        "gated_activation rows=131072 columns=32776 dtype=bf16",
        "rmsnorm rows=131072 columns=32776 dtype=bf16",
        "softmax rows=131072 columns=32776 dtype=bf16",
        "layernorm rows=131072 columns=32776 dtype=bf16",
        "reduce rows=131072 columns=32776 dtype=bf16",
        "embedding tokens=131072 hidden=32776 vocabulary=16 dtype=bf16",
        "rope tokens=1048584 heads=32 kv_heads=8 head_dim=128 dtype=bf16",
        "argmax rows=131072 columns=32776 dtype=bf16"}) {
    EXPECT_FALSE(templates_for(problem).empty()) << problem;
  }
}

TEST(LargeSizesTest, OneLongRowIsReducedAsAWholeTensor) {
  EXPECT_THAT(templates_for("reduce rows=1 columns=2147487744 dtype=bf16"),
              testing::Contains("reduce/tensor"));
  EXPECT_THAT(templates_for("reduce rows=1 columns=4096 dtype=bf16"), ElementsAre("reduce/row"));
  EXPECT_THAT(templates_for("reduce rows=2 columns=2147487744 dtype=bf16"),
              testing::Not(testing::Contains("reduce/tensor")));
}

}  // namespace
}  // namespace kernwright
