#include "model/operation/ranged_problem.h"

#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/catalog/catalog.h"
#include "tests/results.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

class RangedProblemTest : public ::testing::Test {
 protected:
  Result<RangedProblem> bind(std::string_view text) const {
    const Problem written = must(Problem::parse(text));
    EXPECT_TRUE(has_range(written)) << text;
    return RangedProblem::bind(*must(catalog_->operation(written.operation())), written);
  }
  Problem normalized(std::string_view text) const {
    return must(catalog_->bind(must(Problem::parse(text)))).problem();
  }

  std::shared_ptr<const Catalog> catalog_ = must(Catalog::load({}));
};

TEST_F(RangedProblemTest, IsAPointOfEachSize) {
  const RangedProblem family = must(bind("matmul k=4096 dtype=bf16 m=1..8192 n=6144"));
  EXPECT_EQ(family.text(), "matmul m=1..8192 n=6144 k=4096 dtype=bf16");
  EXPECT_EQ(must(bind(family.text())).text(), family.text());
  EXPECT_EQ(family.last().text(), "matmul m=8192 n=6144 k=4096 dtype=bf16");
  EXPECT_EQ(family.free(), (std::vector<FreeDim>{{"m", 1, 8192}}));
  EXPECT_EQ(must(family.at(std::vector<std::int64_t>{77})).text(),
            "matmul m=77 n=6144 k=4096 dtype=bf16");
  EXPECT_FALSE(has_range(family.last().problem()));
}

TEST_F(RangedProblemTest, KnowsTheProblemsOfTheFamily) {
  const RangedProblem family =
      must(bind("attention batch=1..64 heads=32 kv_heads=8 q_len=1 kv_len=1..8192 head_dim=128 "
                "dtype=bf16"));
  const std::string rest = " heads=32 kv_heads=8 q_len=1 kv_len=700 head_dim=128 dtype=bf16";
  EXPECT_EQ(family.sizes_of(normalized("attention batch=3" + rest)),
            (std::vector<std::int64_t>{3, 700}));
  EXPECT_EQ(family.sizes_of(normalized("attention batch=65" + rest)), std::nullopt);
  EXPECT_EQ(family.sizes_of(normalized("attention batch=3" + rest + " softcap=tanh")),
            std::nullopt);
  EXPECT_EQ(family.sizes_of(normalized("matmul m=3 n=700 k=64 dtype=bf16")), std::nullopt);
  EXPECT_EQ(family.sizes_of(normalized("attention batch=3 heads=32 kv_heads=8 q_len=2 kv_len=700 "
                                       "head_dim=128 dtype=bf16")),
            std::nullopt);
}

TEST_F(RangedProblemTest, IncludesFamiliesOfNoOtherSizes) {
  const RangedProblem family = must(bind("matmul m=4..64 n=8 k=8 dtype=bf16"));
  const auto includes = [&](std::string_view text) { return family.includes(must(bind(text))); };
  EXPECT_TRUE(includes("matmul m=4..64 n=8 k=8 dtype=bf16"));
  EXPECT_TRUE(includes("matmul m=5..6 n=8 k=8 dtype=bf16"));
  EXPECT_FALSE(includes("matmul m=3..64 n=8 k=8 dtype=bf16"));
  EXPECT_FALSE(includes("matmul m=4..65 n=8 k=8 dtype=bf16"));
  EXPECT_FALSE(includes("matmul m=4..64 n=16 k=8 dtype=bf16"));
  EXPECT_FALSE(includes("matmul m=4..64 n=8 k=8 dtype=fp16"));
}

TEST_F(RangedProblemTest, ARangeThatIsNoneIsNamed) {
  EXPECT_THAT(
      bind("matmul m=9..3 n=64 k=64 dtype=bf16"),
      Fails(ErrorCode::invalid_argument, HasSubstr("m=9..3 begins at 9, which is not below 3")));
  EXPECT_THAT(bind("matmul m=1..x n=64 k=64 dtype=bf16"),
              Fails(ErrorCode::invalid_argument, HasSubstr("m=1..x is no range")));
  EXPECT_THAT(bind("matmul m=0..4 n=64 k=64 dtype=bf16"),
              Fails(ErrorCode::invalid_argument, HasSubstr("m=0..4 is no range")));
  EXPECT_THAT(bind("matmul m=4 n=1..64 k=64 dtype=bf16"),
              Fails(ErrorCode::invalid_argument, HasSubstr("n=1..64")));
  EXPECT_THAT(bind("matmul m=4 n=64 k=64 rows=1..9 dtype=bf16"),
              Fails(ErrorCode::invalid_argument, HasSubstr("there is no such dim")));
}

TEST_F(RangedProblemTest, ProblemsThatDifferInSizesAloneAreJoined) {
  std::vector<BoundProblem> problems;
  for (const char* text :
       {"matmul m=4 n=64 k=32 dtype=bf16", "rmsnorm rows=3 columns=64 dtype=bf16",
        "matmul m=900 n=64 k=32 dtype=bf16", "matmul m=4 n=128 k=32 dtype=bf16",
        "matmul m=16 n=64 k=32 dtype=bf16", "matmul m=16 n=64 k=32 dtype=fp16"}) {
    problems.push_back(must(catalog_->bind(must(Problem::parse(text)))));
  }
  const std::vector<std::string> families = join_families(problems);
  EXPECT_EQ(families,
            (std::vector<std::string>{
                "matmul m=4..900 n=64 k=32 dtype=bf16", "rmsnorm rows=3 columns=64 dtype=bf16",
                "matmul m=4 n=128 k=32 dtype=bf16", "matmul m=16 n=64 k=32 dtype=fp16"}));
  EXPECT_EQ(must(bind(families[0])).text(), families[0]);
}

TEST_F(RangedProblemTest, ARangeIsLookedAtByItsEndsAndPowers) {
  EXPECT_EQ(spread_sizes(1, 13), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13}));
  EXPECT_EQ(spread_sizes(100, 200), (std::vector<std::int64_t>{100, 112, 128, 160, 192, 200}));
}

}  // namespace
}  // namespace kernwright
