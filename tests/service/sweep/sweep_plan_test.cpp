#include "service/sweep/sweep_plan.h"

#include <gtest/gtest.h>
#include <vector>

#include "tests/service/core_fixture.h"

namespace kernwright {
namespace {

/// Plans for an H200 that is not there.
class SweepPlanTest : public ServiceCoreTest {
 protected:
  SweepPlan plan(const std::vector<Problem>& problems) {
    return plan_sweep(*core_, problems, /*recheck=*/false,
                      [this](std::size_t planned) { planned_.push_back(planned); });
  }

  std::shared_ptr<ServiceCore> core_ = open(MissPolicy::predict, "h200");
  std::vector<std::size_t> planned_;
  Problem other_ = vector_add(65536, DType::fp32);
};

TEST_F(SweepPlanTest, CountsWhatIsDue) {
  const SweepPlan found = plan({problem_, other_});
  EXPECT_EQ(planned_, (std::vector<std::size_t>{1, 2}));
  EXPECT_EQ(found.due(), 2);
  EXPECT_EQ(found.impossible(), 0);
  EXPECT_GT(found.rows[0].compiles, 0);
  EXPECT_GT(found.rows[0].candidates, found.rows[0].compiles) << "some differ in launches alone";
  EXPECT_EQ(found.candidates(), found.rows[0].candidates + found.rows[1].candidates);
  EXPECT_EQ(found.compiles(), found.rows[0].compiles + found.rows[1].compiles);
  EXPECT_DOUBLE_EQ(found.seconds(30, 2), 32);
}

TEST_F(SweepPlanTest, NobodyEnumeratesWhatIsSettled) {
  ASSERT_TRUE(core_->predict(problem_, {.trials = 1}));
  const SweepPlan found = plan({problem_, other_});
  EXPECT_EQ(found.due(), 1);
  EXPECT_FALSE(found.rows[0].due);
  EXPECT_EQ(found.rows[0].problem, problem_);
  EXPECT_EQ(found.rows[0].candidates, 0);
  EXPECT_TRUE(found.rows[1].due);
  EXPECT_EQ(found.candidates(), found.rows[1].candidates);
}

TEST_F(SweepPlanTest, WhatNoTemplateRunsIsARowLikeAnother) {
  const Problem impossible = Problem::parse("softmax rows=1 columns=3000000000 dtype=bf16").value();
  const SweepPlan found = plan({impossible, problem_});
  ASSERT_EQ(found.rows.size(), 2U);
  EXPECT_EQ(found.impossible(), 1);
  EXPECT_FALSE(found.rows[0].due);
  EXPECT_NE(found.rows[0].impossible.find("no template runs"), std::string::npos);
  EXPECT_EQ(found.due(), 1);
  EXPECT_DOUBLE_EQ(found.seconds(30, 1), 32);
}

TEST_F(SweepPlanTest, SoIsWhatItsOperationDoesNotTake) {
  const SweepPlan found = plan({Problem::make("vector_sub", {{"n", 4}}), problem_});
  EXPECT_EQ(found.impossible(), 1);
  EXPECT_NE(found.rows[0].impossible.find("\"vector_sub\""), std::string::npos);
  EXPECT_EQ(found.due(), 1);
}

}  // namespace
}  // namespace kernwright
