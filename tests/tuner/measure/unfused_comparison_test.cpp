#include "tuner/measure/unfused_comparison.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "compile/render.h"
#include "tests/doubles/fake_device.h"
#include "tests/doubles/host_data_ops.h"
#include "tests/results.h"
#include "tests/sum_of_three.h"
#include "tests/tuner/toy.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

float* floats(DevicePointer address) { return reinterpret_cast<float*>(address); }

/// A fake device that computes sums: of the fused kernel in 10 us, of one of two terms in 8.
class UnfusedComparisonTest : public ::testing::Test {
 protected:
  UnfusedComparisonTest() {
    write_sum_of_three(folder_.path());
    FakeDeviceOptions options;
    options.profile = find_profile("h200").value();
    options.profile.l2_bytes = 1 << 16;
    options.landscape = [](std::string_view, const ExecutionPlan& plan) {
      return FakeBehavior{.time_us = plan.tensors.size() == 4 ? 10.0 : 8.0, .outcome = Outcome::ok};
    };
    options.compute = [this](const ExecutionPlan& plan, const LaunchArguments& arguments) {
      compute(plan, arguments);
    };
    device_ = make_fake_device(std::move(options), clock_);
  }

  void compute(const ExecutionPlan& plan, const LaunchArguments& arguments) {
    const std::vector<DevicePointer>& tensors = arguments.tensors;
    const std::size_t inputs = tensors.size() - 1;
    const bool is_reference = !arguments.references.empty();
    float* const to = floats(is_reference ? arguments.references[inputs] : tensors[inputs]);
    for (std::int64_t i = 0; i < plan.tensors[0].elements(); ++i) {
      float sum = 0;
      float terms = 0;
      for (std::size_t j = 0; j < inputs; ++j) {
        sum += floats(tensors[j])[i];
        terms += std::fabs(floats(tensors[j])[i]);
      }
      if (is_reference) {
        floats(arguments.magnitudes[inputs])[i] = terms;
      } else {
        sum += static_cast<float>(error_[inputs - 2]) * terms;
      }
      to[i] = sum;
    }
    if (!is_reference && inputs == 2) results_of_two_.insert(tensors[inputs]);
  }

  Result<UnfusedComparison> compare(L2State l2 = L2State::cold) {
    const auto catalog = must(Catalog::load({folder_.path()}));
    const BoundProblem problem = catalog->bind(Problem::parse(problem_).value()).value();
    UnfusedMatch match;
    match.form = unfused_form(*catalog, problem).value();
    match.fused = proven(*catalog, "sum_of_three/plain", problem);
    for (const UnfusedKernel& kernel : match.form.kernels) {
      match.kernels.push_back(proven(*catalog, "vector_add/vectorized", kernel.problem));
    }
    return compare_unfused(*device_, *ops_, *catalog, pool_, match, l2, 3);
  }

  ProvenKernel proven(const Catalog& catalog, std::string_view name, const BoundProblem& problem) {
    const KernelTemplate& made = *catalog.kernel_template(name).value();
    Candidate candidate =
        make_candidate(made, problem, made.default_configuration, device_->profile()).value();
    const CompileResult compiled = pool_.submit(render(candidate, catalog, 90)).get();
    return {std::move(candidate), compiled.value()};
  }

  std::string problem_ = "sum_of_three n=1000 dtype=fp32";
  double error_[2] = {0, 0};  ///< of a sum of two and of three terms, in units of their magnitude
  std::set<DevicePointer> results_of_two_;
  ScopedTempDir folder_;
  ManualClock clock_;
  CompilePool pool_{std::make_shared<FakeCompiler>(), {.threads = 1}};
  std::unique_ptr<DataOps> ops_ = make_host_data_ops();
  std::unique_ptr<Device> device_;
};

TEST_F(UnfusedComparisonTest, ChecksBothAndTimesThemInTurn) {
  const auto compared = must(compare());
  for (const ComparedSide* side : {&compared.fused, &compared.unfused}) {
    EXPECT_EQ(side->check.elements, 1000);
    EXPECT_EQ(side->check.mismatches, 0);
    EXPECT_EQ(side->times.samples_us.size(), 31U);
  }
  EXPECT_DOUBLE_EQ(compared.fused.times.median_us(), 10);
  EXPECT_DOUBLE_EQ(compared.unfused.times.median_us(), 16) << "two kernels are one unit";
  // Every buffer set has its own sum of two: of those that the fake runs, the first, the last of
  // the rough timing, and the last.
  EXPECT_EQ(results_of_two_.size(), 6U);
}

TEST_F(UnfusedComparisonTest, AWrongResultNamesTheSide) {
  error_[1] = 0.5;
  auto compared = compare();
  EXPECT_THAT(
      compared,
      Fails(ErrorCode::internal,
            HasSubstr("sum_of_three n=1000 dtype=fp32 gives another result than the reference: "
                      "1000 of 1000 elements beyond the bound, the first d[0]")));
  error_[1] = 0;
  error_[0] = 0.5;
  compared = compare();
  EXPECT_THAT(
      compared,
      Fails(HasSubstr("the unfused form of sum_of_three n=1000 dtype=fp32 gives another result")));
}

TEST_F(UnfusedComparisonTest, OnlyTheUnfusedFormMayRoundInBetween) {
  problem_ = "sum_of_three n=64 dtype=fp32";
  constexpr double kUnit = 0x1p-24;
  error_[0] = 5.2 * kUnit;  // in both sums: beyond 8 units of the magnitude, within 12
  auto compared = must(compare());
  EXPECT_GT(compared.unfused.check.max_error, 0.5);
  error_[0] = 0;
  error_[1] = 11 * kUnit;
  EXPECT_FALSE(compare()) << "not the fused kernel";
}

TEST_F(UnfusedComparisonTest, GoesByTheStateOfTheL2) {
  for (const L2State l2 : {L2State::warm, L2State::mixed}) {
    const auto compared = compare(l2);
    EXPECT_TRUE(compared) << compared.error().message;
  }
}

}  // namespace
}  // namespace kernwright
