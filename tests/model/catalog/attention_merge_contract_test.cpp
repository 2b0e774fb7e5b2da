// The contract of the operation attention_merge.

#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/candidate/candidate.h"
#include "support/text.h"
#include "tests/model/built_in_catalog.h"
#include "tests/model/samples.h"

namespace kernwright {
namespace {

using Sizes = std::vector<std::int64_t>;

class AttentionMergeContractTest : public ::testing::Test {
 protected:
  const Operation& merge_ = *catalog().operation("attention_merge").value();

  Result<Problem> named(std::string_view more) const {
    return merge_.normalize(
        Problem::parse(
            concat("attention_merge parts=3 batch=2 heads=4 q_len=5 head_dim_v=16 ", more))
            .value());
  }
  std::map<std::string, TensorShape> shapes(std::string_view more) const {
    const auto problem = named(more);
    EXPECT_TRUE(problem) << problem.error().message;
    std::map<std::string, TensorShape> by_name;
    const std::vector<TensorShape> all = merge_.tensor_shapes(*problem).value();
    for (const TensorShape& shape : all) by_name.emplace(shape.name, shape);
    return by_name;
  }
};

TEST_F(AttentionMergeContractTest, APartIsLaidOutAsAttentionWritesIt) {
  const Operation& attention = *catalog().operation("attention").value();
  for (const char* layout : {"layout=bshd", "layout=bhsd", "layout=bshd ldo=72"}) {
    const Problem problem =
        attention
            .normalize(Problem::parse(concat("attention batch=2 heads=4 q_len=5 kv_len=9 ",
                                             "head_dim=16 dtype=bf16 lse=natural ", layout))
                           .value())
            .value();
    std::string parts(layout);
    if (const auto at = parts.find("ldo"); at != std::string::npos) parts.replace(at, 3, "ldp");
    const auto merged = shapes(concat("dtype=bf16 lse=natural ", parts));
    const auto all = attention.tensor_shapes(problem).value();
    for (const TensorShape& shape : all) {
      if (shape.name != "o" && shape.name != "lse") continue;
      const TensorShape& part = merged.at(shape.name + "_parts");
      Sizes extent = shape.extent;
      extent.insert(extent.begin(), 3);
      EXPECT_EQ(part.extent, extent) << layout;
      const std::size_t last = shape.pitches.size();
      ASSERT_EQ(part.pitches.size(), last == 0 ? 0 : last + 1) << layout;
      for (std::size_t i = 0; i < last; ++i) EXPECT_EQ(part.pitches[i + 1], shape.pitches[i]);
    }
  }
}

TEST_F(AttentionMergeContractTest, TheMergedLogarithmIsThereWhereItIsAskedFor) {
  EXPECT_EQ(shapes("dtype=bf16").count("lse"), 0U);
  const auto both = shapes("dtype=fp32 out=bf16 lse_parts=base2 lse=natural");
  EXPECT_EQ(both.at("lse").extent, (Sizes{2, 4, 5}));
  EXPECT_TRUE(both.at("lse").infinite);
  EXPECT_FALSE(both.at("o").infinite);
  EXPECT_EQ(both.at("o").dtype, DType::bf16);
  EXPECT_EQ(both.at("o_parts").dtype, DType::fp32);
}

TEST_F(AttentionMergeContractTest, RowsAreWholeVectors) {
  for (const char* wrong : {"head_dim_v=12", "ldp=56", "ldo=68"}) {
    std::string text = "attention_merge parts=3 batch=2 heads=4 q_len=5 dtype=bf16 ";
    if (!std::string_view(wrong).starts_with("head")) text += "head_dim_v=16 ";
    const auto problem = merge_.normalize(Problem::parse(text + wrong).value());
    ASSERT_FALSE(problem) << wrong;
    EXPECT_NE(problem.error().message.find("16 bytes"), std::string::npos)
        << problem.error().message;
  }
}

TEST_F(AttentionMergeContractTest, EveryPartIsReadOnce) {
  const Scope scope = merge_.scope(named("dtype=fp16 out=fp32 lse=base2").value());
  EXPECT_EQ(merge_.bytes.evaluate(scope).value(), 40 * (3 * (16 * 2 + 4) + 16 * 4 + 4));
}

}  // namespace
}  // namespace kernwright
