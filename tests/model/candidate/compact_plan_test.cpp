#include "model/candidate/compact_plan.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "tests/device/plans.h"

namespace kernwright {
namespace {

ExecutionPlan plan_with_numbers() {
  ExecutionPlan plan = counting_plan("count", 5);
  plan.tensors.push_back(tensor("a", TensorRole::in, DType::fp32, {3, 4}));
  plan.tensors.back().pitches = {6};
  plan.tensors.back().alignment = 4;
  plan.tensor_maps = copy_box_plan().tensor_maps;
  plan.launches[0].arguments.push_back(number(ArgumentKind::int64, 9));
  return plan;
}

TEST(CompactPlanTest, AFormListsTheNumbersOfItsPlan) {
  const PlanForm form(plan_with_numbers());
  EXPECT_EQ(form.numbers, (std::vector<std::int64_t>{4,                          // the workspace
                                                     64, 8, 128,                 // the map
                                                     5, 1, 1, 0, 9, 1, 1, 1, 0,  // two launches
                                                     1, 3, 4, 6}));              // two tensors
  EXPECT_EQ(form.maps, std::vector<std::size_t>{1});
  EXPECT_EQ(form.launches, (std::vector<std::size_t>{4, 9}));
  EXPECT_EQ(form.tensors, 13U);
  EXPECT_EQ(form.crooked_bits, (std::vector<std::uint64_t>{15, 3}));
}

TEST(CompactPlanTest, TheWholePlanHasItsOwnNumbersInTheFormsPlan) {
  const auto form = std::make_shared<const PlanForm>(plan_with_numbers());
  EXPECT_EQ(&CompactPlan(form).whole(), &form->plan);
  ExecutionPlan other = plan_with_numbers();
  other.workspaces[0].bytes = 300;
  other.tensor_maps[0].dims[1] = 16;
  other.launches[0].grid[1] = 2;
  other.launches[0].dynamic_smem = 640;
  other.launches[0].arguments[1].value = -3;
  other.tensors[1].extent[0] = 30;
  other.tensors[1].pitches[0] = 5;
  const CompactPlan plan(form, PlanForm(other).numbers, total_bytes(other.tensors));
  EXPECT_EQ(plan.workspace_bytes(), 512);
  EXPECT_EQ(plan.bytes(), total_bytes(other.tensors));
  EXPECT_EQ(plan.whole().workspaces, other.workspaces);
  EXPECT_EQ(plan.whole().tensor_maps, other.tensor_maps);
  EXPECT_EQ(plan.whole().launches, other.launches);
  EXPECT_EQ(plan.whole().tensors[1].extent, other.tensors[1].extent);
  EXPECT_EQ(plan.whole().tensors[1].pitches, other.tensors[1].pitches);
}

}  // namespace
}  // namespace kernwright
