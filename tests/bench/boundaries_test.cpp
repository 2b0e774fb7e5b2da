#include <gtest/gtest.h>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/boundaries/chains.h"
#include "bench/boundaries/experiments.h"
#include "bench/boundaries/kernels.h"
#include "bench/boundaries/lab.h"
#include "tests/compile/toolkit_world.h"

namespace kernwright::boundaries {
namespace {

class BoundariesToolkitTest : public ToolkitWorld {};

TEST_F(BoundariesToolkitTest, KernelsCompileWithoutSpills) {
  for (const auto& [arch, entries] :
       {std::pair{80, std::size_t{12}}, std::pair{90, std::size_t{21}}}) {
    std::set<std::string> names;
    for (const std::string_view file : kKernelFiles) {
      const auto request = kernel_request(file, arch);
      ASSERT_TRUE(request) << request.error().message;
      const CompileResult compiled = pool_->submit(*request).get();
      ASSERT_TRUE(compiled) << compiled.error().message;
      for (const KernelEntry& entry : (*compiled)->entries) {
        EXPECT_EQ(entry.resources.spill_bytes(), 0) << entry.name;
        EXPECT_LE(entry.resources.registers, 120) << entry.name;
        names.insert(entry.name);
      }
    }
    EXPECT_EQ(names.size(), entries) << "sm_" << arch;
  }
}

TEST(BoundariesTest, AFileThatIsNotThereIsNamed) {
  const auto request = kernel_request("ladder.cu", 90);
  ASSERT_FALSE(request);
  EXPECT_EQ(request.error().message, "no kernels in ladder.cu");
}

TEST(BoundariesTest, WeightsAreSummedByTheirNumbers) {
  for (const std::uint64_t first : {0U, 3U, 70'000U}) {
    std::uint32_t sum = 0;
    const std::uint64_t words = kSlotBytes / 4;
    for (std::uint64_t i = first * words; i < (first + 5) * words; ++i) {
      sum += static_cast<std::uint32_t>(i);
    }
    EXPECT_EQ(weights_sum(first, 5), sum);
  }
}

TEST(BoundariesTest, EveryStepAndEveryPartOfItsWeightsShows) {
  const std::vector<StepWeights> steps{{0, 1}, {5, 1}, {10, 1}};
  for (const Reach reach : {Reach::everybody, Reach::neighbours}) {
    const auto right = passed_words(reach, 40, 5, steps);
    EXPECT_EQ(right, passed_words(reach, 40, 5, steps));
    for (std::size_t i = 0; i < steps.size(); ++i) {
      std::vector<StepWeights> other = steps;
      other[i].first_slot += 1;
      EXPECT_NE(right, passed_words(reach, 40, 5, other)) << i;
      other.erase(other.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_NE(right, passed_words(reach, 40, 5, other)) << i;
    }
  }
}

TEST(BoundariesTest, ParametersArePointersThenNumbers) {
  const KernelShape shape{.kernel = "chain_red",
                          .pointers = 2,
                          .numbers = 1,
                          .blocks = 132,
                          .threads = 288,
                          .shared_bytes = 1024,
                          .cooperative = true};
  const ExecutionPlan plan = shape.plan();
  ASSERT_EQ(plan.launches.size(), 1U);
  const LaunchPlan& launch = plan.launches[0];
  ASSERT_EQ(launch.arguments.size(), 3U);
  EXPECT_EQ(launch.arguments[1].kind, ArgumentKind::tensor);
  EXPECT_EQ(launch.arguments[2].kind, ArgumentKind::scalar);
  EXPECT_EQ(plan.scalars[0].dtype, DType::int32);
  EXPECT_TRUE(launch.cooperative);
  EXPECT_EQ(launch.dynamic_smem, 1024U);
}

TEST(BoundariesTest, UnitsOfWorkReadMoreThanTheL2HoldsAndStayInTheRegion) {
  constexpr std::uint32_t kBlocks = 132;
  constexpr std::uint64_t kRegion = 70'000;  // slots
  const Work pass{.name = "2 KB", .reach = Reach::everybody, .words = 512};
  const Work without = with_steps(pass, 29, 0, kBlocks, kRegion);
  EXPECT_EQ(without.units.size(), 1U);
  EXPECT_EQ(without.bytes_per_unit(kBlocks), 0);
  for (const std::uint32_t slots : {1U, 4U, 16U}) {
    const Work work = with_steps(pass, 29, slots, kBlocks, kRegion);
    EXPECT_EQ(work.steps(), 29U);
    EXPECT_GE(work.bytes_per_unit(kBlocks) * static_cast<double>(work.units.size()), 4e8);
    for (const auto& unit : work.units) {
      for (const StepWeights& step : unit) {
        EXPECT_EQ(step.first_slot % (slots * kBlocks), 0U) << "persistent kernels count rows";
        EXPECT_LE(step.first_slot + slots * kBlocks, kRegion);
      }
    }
  }
}

TEST(BoundariesTest, ARowHasTheMedianBetweenItsQuartiles) {
  Arm arm{.name = "graph", .steps = 2, .bytes = 6e6};
  arm.us = {5, 1, 3, 2, 4};
  arm.more = {{"kernels_at_once", 4}};
  const auto row = row_of("steps count=2", arm);
  EXPECT_EQ(row.dump(),
            R"({"problem":"steps count=2 arm=graph","us":3.0,"low_us":2.0,"high_us":4.0,)"
            R"("steps":2,"step_us":1.5,"bytes":6000000.0,"tbps":2.0,"rounds":5,)"
            R"("kernels_at_once":4})");
}

TEST(BoundariesTest, ARowNeedsNoFurtherFields) {
  Arm arm;
  arm.name = "graph";
  arm.us = {2};
  EXPECT_EQ(row_of("steps", arm)["us"], 2);
}

TEST(BoundariesTest, ARowSaysWhyThereIsNoTime) {
  Arm arm{.name = "start_l2"};
  arm.skipped = "needs sm_90, the GPU is sm_80";
  EXPECT_EQ(row_of("early", arm).dump(),
            R"({"problem":"early arm=start_l2","skipped":"needs sm_90, the GPU is sm_80"})");
  arm.skipped.clear();
  arm.error = "step 3 waited for too long";
  EXPECT_EQ(row_of("early", arm).dump(),
            R"({"problem":"early arm=start_l2","error":"step 3 waited for too long"})");
}

TEST(BoundariesTest, ExperimentsAreChosenByTheirName) {
  EXPECT_EQ(choose_experiments("")->size(), experiments().size());
  const auto one = choose_experiments("barrier");
  ASSERT_TRUE(one);
  ASSERT_EQ(one->size(), 1U);
  EXPECT_EQ(one->front().name, "barrier");
  const auto none = choose_experiments("barriers");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message,
            "no experiment barriers; there are steps, barrier, period, cascade, stream, early, "
            "consume");
}

}  // namespace
}  // namespace kernwright::boundaries
