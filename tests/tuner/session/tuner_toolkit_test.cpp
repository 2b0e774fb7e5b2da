#include <gtest/gtest.h>

#include "tests/doubles/fake_device.h"
#include "tests/results.h"
#include "tests/temp_dir.h"
#include "tuner/data/data_ops.h"
#include "tuner/data/probe_kernels.h"
#include "tuner/session/predict_record.h"

namespace kernwright {
namespace {

/// The real compiler; skips with the reason if there is no toolkit.
class TunerToolkitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::shared_ptr<Compiler> compiler = make_toolkit_compiler();
    if (auto toolkit = compiler->identity(); !toolkit) GTEST_SKIP() << toolkit.error().message;
    pool_ = std::make_unique<CompilePool>(std::move(compiler), CompilePoolOptions{});
  }
  std::unique_ptr<CompilePool> pool_;
};

TEST_F(TunerToolkitTest, TheDataKernelsCompileForEveryElementType) {
  int loads = 0;
  FakeDeviceOptions options;
  options.profile = find_profile("h200").value();
  options.landscape = [&](std::string_view cubin, const ExecutionPlan& plan) {
    ++loads;
    EXPECT_NE(cubin.find(plan.launches.front().kernel), std::string_view::npos);
    return FakeBehavior{};
  };
  ManualClock clock;
  const auto device = make_fake_device(std::move(options), clock);
  const auto ops = must(make_device_data_ops(*device, *pool_));
  const auto buffer = must(device->allocate(4096));
  for (const DType dtype : kDTypes) {
    const auto drawn = ops->draw(buffer->address(), dtype, 64, {DrawKind::normal}, 1);
    EXPECT_TRUE(drawn) << drawn.error().message;
  }
  EXPECT_EQ(loads, 4 * std::ssize(kDTypes));
}

TEST_F(TunerToolkitTest, TheReferenceKernelsCompileAndFitAnyLaunch) {
  std::vector<std::string> loaded;
  FakeDeviceOptions options;
  options.profile = find_profile("h200").value();
  options.landscape = [&](std::string_view cubin, const ExecutionPlan& plan) {
    loaded.push_back(plan.launches.front().kernel);
    EXPECT_NE(cubin.find(loaded.back()), std::string_view::npos);
    return FakeBehavior{};
  };
  ManualClock clock;
  const auto device = make_fake_device(std::move(options), clock);
  const auto kernels = must(ProbeKernels::make(
      *device, pool_->submit(ProbeKernels::request(device->profile().sm_arch)).get()));
  ExecutionPlan plan;
  plan.launches.resize(2);
  plan.launches[0].kernel = "first";
  plan.launches[1].kernel = "second";
  plan.launches[1].cluster = {2, 1, 1};
  ASSERT_TRUE(kernels.empty(*device, plan));
  EXPECT_EQ(loaded, (std::vector<std::string>{"kernwright_sm_probe", "kernwright_dram_probe",
                                              "kernwright_empty"}));
  ExecutionPlan other = plan;
  EXPECT_EQ(ProbeKernels::launch_shape(plan), ProbeKernels::launch_shape(other));
  other.launches[1].cluster = {1, 1, 1};
  EXPECT_NE(ProbeKernels::launch_shape(plan), ProbeKernels::launch_shape(other));
}

TEST_F(TunerToolkitTest, EveryOperationsExampleIsPredicted) {
  const auto catalog = Catalog::load({}).value();
  for (const char* sku : {"h200", "a100_80"}) {
    const DeviceProfile profile = find_profile(sku).value();
    for (const Operation& operation : catalog->operations()) {
      const BoundProblem problem = BoundProblem::bind(operation, operation.example).value();
      SCOPED_TRACE(problem.text());
      const auto result = must(predict_record({.catalog = *catalog,
                                               .problem = problem,
                                               .profile = profile,
                                               .pool = *pool_,
                                               .key = {problem.text(), "sm_90", sku, {}},
                                               .environment = {}},
                                              {.trials = 3}));
      const RankedConfiguration& winner = result.record.winner;
      EXPECT_GE(winner.predicted_us, result.record.roofline_us);
      EXPECT_NE(result.kernel, nullptr);
      for (const Trial& trial : result.trials) {
        EXPECT_EQ(to_string(trial.outcome), "ok") << trial.choice.id() << ": " << trial.detail;
      }
    }
  }
}

}  // namespace
}  // namespace kernwright
