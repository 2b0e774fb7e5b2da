#include "tuner/check/checker.h"

#include <gtest/gtest.h>

namespace kernwright {
namespace {

std::optional<DrawKind> exact_for(std::string_view text) {
  static const auto catalog = Catalog::load({}).value();
  return exact_draw(catalog->bind(Problem::parse(text).value()).value());
}

TEST(ExactDistributionTest, SmallIntegersWhereSumsAndResultsStayExact) {
  EXPECT_EQ(exact_for("vector_add n=8 dtype=fp16"), DrawKind::small_integers);
  EXPECT_EQ(exact_for("matmul m=8 n=8 k=28672 dtype=bf16"), DrawKind::small_integers);
  EXPECT_EQ(exact_for("matmul m=8 n=8 k=28672 dtype=fp32 tf32=allow"), DrawKind::small_integers);
  EXPECT_EQ(exact_for("matmul m=8 n=8 k=7278 dtype=fp16"), DrawKind::small_integers);
  EXPECT_EQ(exact_for("matmul m=8 n=8 k=7277 dtype=fp16 bias=column"), DrawKind::small_integers);
}

TEST(ExactDistributionTest, SignsWhereTheOutputWouldOverflow) {
  EXPECT_EQ(exact_for("matmul m=8 n=8 k=7279 dtype=fp16"), DrawKind::signs);
  EXPECT_EQ(exact_for("matmul m=8 n=8 k=65504 dtype=fp16"), DrawKind::signs);
  EXPECT_EQ(exact_for("matmul m=8 n=8 k=7277 dtype=fp16 bias=column residual=add"),
            DrawKind::signs);
  EXPECT_EQ(exact_for("matmul m=8 n=8 k=1864136 dtype=bf16"), DrawKind::signs);
}

TEST(ExactDistributionTest, AKernelOfTheOperationWhereItHasOne) {
  const std::string attention = "attention batch=2 heads=8 q_len=64 kv_len=64 dtype=bf16 ";
  EXPECT_EQ(exact_for(attention + "head_dim=64"), DrawKind::kernel);
  EXPECT_EQ(exact_for(attention + "head_dim=56"), std::nullopt);
  EXPECT_EQ(exact_for(attention + "head_dim=64 softcap=tanh"), std::nullopt);
}

TEST(ErrorBoundTest, KnowsAnIntermediateThatIsRounded) {
  const auto catalog = Catalog::load({}).value();
  const BoundProblem problem =
      catalog
          ->bind(Problem::parse("attention batch=1 heads=1 q_len=8 kv_len=8 head_dim=64 "
                                "dtype=bf16 lse=natural")
                     .value())
          .value();
  const ErrorBound o = error_bound(problem, problem.shapes()[3]);
  EXPECT_DOUBLE_EQ(o.accumulate_unit, 8 * 8 * 0x1p-22 + 2 * 0x1p-8);
  EXPECT_FALSE(o.infinite);
  const ErrorBound lse = error_bound(problem, problem.shapes()[4]);
  EXPECT_DOUBLE_EQ(lse.accumulate_unit, 8 * 8 * 0x1p-22);
  EXPECT_TRUE(lse.infinite);
}

TEST(ExactDistributionTest, NoneWhereNothingIsExact) {
  EXPECT_EQ(exact_for("matmul m=8 n=8 k=65505 dtype=fp16"), std::nullopt);
  EXPECT_EQ(exact_for("matmul m=8 n=8 k=8 dtype=bf16 activation=silu"), std::nullopt);
  EXPECT_EQ(exact_for("matmul m=8 n=8 k=8 dtype=bf16 gate=stacked"), std::nullopt)
      << "products of sums pass the exact range";
  EXPECT_EQ(exact_for("rmsnorm rows=8 columns=64 dtype=bf16"), std::nullopt);
}

}  // namespace
}  // namespace kernwright
