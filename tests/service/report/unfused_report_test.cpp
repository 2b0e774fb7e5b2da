#include "service/report/unfused_report.h"

#include <functional>
#include <gmock/gmock.h>

#include "support/try.h"
#include "tests/results.h"
#include "tests/service/core_fixture.h"
#include "tests/sum_of_three.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

/// rmsnorm with a residual: an addition and a norm.
class UnfusedReportTest : public ServiceCoreTest {
 protected:
  UnfusedReportTest() { problem_ = rmsnorm(16, 256, DType::bf16).with("residual", "add"); }

  Result<UnfusedReport> report(ServiceCore& core) {
    return report_unfused(
        core, problem_,
        [&](const Problem& problem, double seconds) -> Result<TuningRecord> {
          asked_.push_back(problem.text());
          seconds_.push_back(seconds);
          TuningResult result;
          if (core.has_device()) {
            KW_ASSIGN(result, core.tune(problem, {.budget = {.trials = trials_}}));
          } else {
            KW_ASSIGN(result, core.predict(problem, {.trials = 1}));
          }
          if (!took_.empty()) {
            result.record.wall_seconds = took_.front();
            took_.erase(took_.begin());
          }
          return result.record;
        },
        budget_, 1);
  }

  /// Returns the seconds of `budget` that each problem gets if they take `took`.
  std::vector<double> shares(double budget, std::vector<double> took) {
    budget_ = budget;
    took_ = std::move(took);
    seconds_.clear();
    const auto core = open(MissPolicy::predict, "h200");
    const Result<UnfusedReport> compared = report(*core);
    EXPECT_TRUE(compared) << compared.error().message;
    return seconds_;
  }

  std::vector<std::string> asked_;
  std::vector<double> seconds_;
  std::vector<double> took_;
  double budget_ = 30;
  int trials_ = 20;
};

TEST_F(UnfusedReportTest, MeasuresBothOnADevice) {
  const auto core = open();
  const UnfusedReport compared = must(report(*core));
  EXPECT_EQ(asked_, (std::vector<std::string>{"rmsnorm rows=16 columns=256 dtype=bf16 residual=add",
                                              "elementwise n=4096 dtype=bf16 formula=x+y",
                                              "rmsnorm rows=16 columns=256 dtype=bf16"}));
  EXPECT_TRUE(compared.measured);
  EXPECT_EQ(compared.fused.launches, 1);
  EXPECT_EQ(compared.fused.bytes, (4 * 4096 + 256) * 2);
  ASSERT_EQ(compared.kernels.size(), 2U);
  EXPECT_EQ(compared.kernels[0].bytes, 3 * 4096 * 2);
  EXPECT_EQ(compared.kernels[1].bytes, (2 * 4096 + 256) * 2);
  EXPECT_EQ(compared.unfused.launches, 2);
  EXPECT_EQ(compared.unfused.bytes, (5 * 4096 + 256) * 2);
  EXPECT_EQ(compared.kernels[1].kernel_template, "rmsnorm/row");
  // The fake's times are exact, and a graph of two kernels takes their sum.
  EXPECT_DOUBLE_EQ(compared.fused.us, compared.fused_kernel.us);
  EXPECT_DOUBLE_EQ(compared.unfused.us, compared.kernels[0].us + compared.kernels[1].us);
  EXPECT_DOUBLE_EQ(compared.ratio(), compared.unfused.us / compared.fused.us);
}

TEST_F(UnfusedReportTest, PredictsWithoutOne) {
  const auto core = open(MissPolicy::predict, "h200");
  const UnfusedReport compared = must(report(*core));
  EXPECT_FALSE(compared.measured);
  EXPECT_GT(compared.fused.us, 0);
  EXPECT_DOUBLE_EQ(compared.unfused.us, compared.kernels[0].us + compared.kernels[1].us);
  EXPECT_GT(compared.ratio(), 1);
  EXPECT_EQ(compared.unfused.launches, 2);
}

TEST_F(UnfusedReportTest, AKernelThatOccursTwiceIsTunedOnce) {
  const ScopedTempDir folder;
  write_sum_of_three(folder.path());
  template_dirs_ = {folder.path().string()};
  problem_ = Problem::parse("sum_of_three n=1000 dtype=fp32").value();
  const auto core = open(MissPolicy::predict, "h200");
  const UnfusedReport compared = must(report(*core));
  EXPECT_EQ(asked_.size(), 2U);
  EXPECT_EQ(compared.kernels.size(), 2U);
}

TEST_F(UnfusedReportTest, TheFusedKernelGetsItsShareOfTheSecondsFirst) {
  using Shares = std::vector<double>;
  EXPECT_EQ(shares(30, {15, 7, 8}), (Shares{15, 7.5, 8}));
  EXPECT_EQ(shares(30, {4, 2, 1}), (Shares{15, 13, 24})) << "what is left over goes on";
  EXPECT_EQ(shares(6, {5, 0.5, 0.5}), (Shares{5, 0.5, 0.5})) << "of few, its search can look";
  EXPECT_EQ(shares(2, {2.5, 0.5, 0.5}), (Shares{2, 0, 0}));
}

TEST_F(UnfusedReportTest, ASearchThatHardlyLookedIsNamed) {
  trials_ = 3;
  const auto core = open();
  const UnfusedReport compared = must(report(*core));
  EXPECT_TRUE(compared.fused_kernel.hardly_looked);
  EXPECT_TRUE(compared.kernels[0].hardly_looked);
}

TEST_F(UnfusedReportTest, SaysWhereThereIsNothingToCompare) {
  problem_ = rmsnorm(16, 256, DType::bf16);
  const auto core = open();
  EXPECT_THAT(report(*core), Fails(ErrorCode::not_found,
                                   HasSubstr("has no unfused form: it is one kernel as it is")));
  EXPECT_EQ(asked_, std::vector<std::string>{});
}

/// Makes the addition of the unfused form end in `outcome`.
std::function<Outcome(const ExecutionPlan&)> addition_ends_in(Outcome outcome) {
  return [outcome](const ExecutionPlan& plan) {
    return plan.tensors.size() == 3 && plan.tensors[2].name == "r" ? outcome : Outcome::ok;
  };
}

TEST_F(UnfusedReportTest, AFailureNamesTheKernel) {
  world_.outcome = addition_ends_in(Outcome::out_of_memory);
  const auto core = open();
  EXPECT_THAT(report(*core), Fails(HasSubstr("elementwise n=4096 dtype=bf16 formula=x+y: ")));
}

TEST_F(UnfusedReportTest, AWrongResultIsFound) {
  world_.outcome = addition_ends_in(Outcome::wrong_result);  // its reference's too
  const auto core = open();
  EXPECT_THAT(
      report(*core),
      Fails(ErrorCode::internal,
            HasSubstr("the unfused form of rmsnorm rows=16 columns=256 dtype=bf16 residual=add "
                      "gives another result than the reference: 4096 of 8192 elements beyond "
                      "the bound, the first sum[0,0]: -77 != 1")));
}

}  // namespace
}  // namespace kernwright
