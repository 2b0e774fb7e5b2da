// The contract of the operation argmax.

#include <cstdint>
#include <gtest/gtest.h>
#include <set>
#include <string_view>
#include <vector>

#include "model/candidate/candidate.h"
#include "tests/model/built_in_catalog.h"
#include "tests/model/samples.h"
#include "tests/model/valid_candidates.h"

namespace kernwright {
namespace {

class ArgmaxContractTest : public ::testing::Test {
 protected:
  static Result<BoundProblem> bind(std::string_view text) {
    return catalog().bind(Problem::parse(text).value());
  }
  static std::vector<Candidate> candidates(std::string_view text) {
    const auto problem = bind(text);
    EXPECT_TRUE(problem) << problem.error().message;
    return valid_candidates(**catalog().kernel_template("argmax/split"), *problem,
                            *find_profile("h200"));
  }
};

TEST_F(ArgmaxContractTest, EveryRowHasAnInt32) {
  const auto problem = bind("argmax rows=5 columns=300 dtype=bf16");
  ASSERT_TRUE(problem) << problem.error().message;
  ASSERT_EQ(problem->shapes().size(), 2U);
  EXPECT_EQ(problem->shapes()[1].extent, (std::vector<std::int64_t>{5}));
  EXPECT_EQ(problem->shapes()[1].dtype, DType::int32);
  EXPECT_EQ(problem->operation().bytes.evaluate(problem->scope()).value(), 5 * (600 + 4));
  const auto wide = bind("argmax rows=1 columns=2147483648 dtype=bf16");
  ASSERT_FALSE(wide);
  EXPECT_NE(wide.error().message.find("an index is an int32"), std::string::npos)
      << wide.error().message;
}

// Each block of a device can have a part of one row, and all of them something to read.
TEST_F(ArgmaxContractTest, OneRowMayHaveABlockOnEveryMultiprocessor) {
  std::set<std::uint32_t> grids;
  for (const Candidate& candidate : candidates("argmax rows=1 columns=151936 dtype=bf16")) {
    ASSERT_EQ(candidate.plan.launches.size(), 1U);
    grids.insert(candidate.plan.launches.front().grid[0]);
  }
  EXPECT_TRUE(grids.contains(1));
  EXPECT_TRUE(grids.contains(128));
}

// Blocks pass values to each other through a workspace that is zero before and after each launch.
TEST_F(ArgmaxContractTest, OnlyWhereBlocksShareARowThereIsAWorkspace) {
  int shared = 0;
  for (const char* text :
       {"argmax rows=3 columns=151936 dtype=fp16", "argmax rows=3 columns=999 dtype=bf16"}) {
    for (const Candidate& candidate : candidates(text)) {
      const bool shares = candidate.configuration.at("SPLIT") > 1;
      shared += shares ? 1 : 0;
      ASSERT_EQ(candidate.plan.workspaces.size(), 2U);
      for (const WorkspacePlan& workspace : candidate.plan.workspaces) {
        EXPECT_EQ(workspace.bytes > 0, shares) << candidate.id();
        EXPECT_TRUE(workspace.kept_zero);
      }
    }
  }
  EXPECT_GT(shared, 0);
}

}  // namespace
}  // namespace kernwright
