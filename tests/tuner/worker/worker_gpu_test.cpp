#include <chrono>
#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "compile/render.h"
#include "device/cuda/cuda_device.h"
#include "support/processes/find_tool.h"
#include "support/text.h"
#include "tests/results.h"
#include "tests/temp_dir.h"
#include "tests/tuner/worker/faulty_template.h"
#include "tuner/worker/worker_runner.h"

namespace kernwright {
namespace {

/// Candidates of `vector_add/faulty`, compiled.
class FaultyCandidates {
 public:
  explicit FaultyCandidates(std::shared_ptr<Compiler> compiler)
      : pool_(std::move(compiler), {}),
        catalog_(Catalog::load({templates_.path()}).value()),
        problem_(
            catalog_->bind(Problem::parse("vector_add n=8388608 dtype=bf16").value()).value()) {}

  Candidate candidate(Fault fault, int variant, const DeviceProfile& profile) const {
    const KernelTemplate& faulty = *catalog_->kernel_template("vector_add/faulty").value();
    const Configuration configuration({{"FAULT", static_cast<int>(fault)}, {"VARIANT", variant}});
    auto made = make_candidate(faulty, problem_, configuration, profile);
    EXPECT_TRUE(made) << made.error().message;
    return made.value();
  }
  CompileResult compile(const Candidate& candidate, int sm_arch) {
    return pool_.submit(render(candidate, *catalog_, sm_arch)).get();
  }

  CompilePool& pool() { return pool_; }
  WorkerProblem problem(const DeviceProfile& profile) const {
    return {*catalog_, {templates_.path()}, problem_, profile};
  }

 private:
  FaultyTemplates templates_;
  CompilePool pool_;
  std::shared_ptr<const Catalog> catalog_;
  BoundProblem problem_;
};

TEST(FaultyTemplateToolkitTest, EveryFaultCompiles) {
  std::shared_ptr<Compiler> compiler = make_toolkit_compiler();
  if (auto toolkit = compiler->identity(); !toolkit) GTEST_SKIP() << toolkit.error().message;
  FaultyCandidates candidates(std::move(compiler));
  const DeviceProfile profile = find_profile("h200").value();
  for (int fault = 0; fault <= static_cast<int>(Fault::trap); ++fault) {
    const CompileResult compiled =
        candidates.compile(candidates.candidate(static_cast<Fault>(fault), 1, profile), 90);
    ASSERT_TRUE(compiled) << compiled.error().message;
  }
}

/// Real kernels in the real worker, which is in this program's folder.
class WorkerGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto info = describe_cuda_device(0);
    if (!info) GTEST_SKIP() << info.error().message;
    std::shared_ptr<Compiler> compiler = make_toolkit_compiler();
    if (auto toolkit = compiler->identity(); !toolkit) GTEST_SKIP() << toolkit.error().message;
    profile_ = info->profile;
    candidates_ = std::make_unique<FaultyCandidates>(std::move(compiler));
    const auto program = must(find_tool({}));
    WorkerOptions options;
    options.program = program;
    options.uuid = info->identity.uuid;
    options.cache_root = cache_.path();
    options.log = [](std::string_view line) { std::cout << line << '\n'; };
    options.inform = options.log;
    worker_ = must(Worker::start(std::move(options), candidates_->pool()));
    runner_ = must(open_worker_runner(*worker_, candidates_->problem(profile_), {}));
    measure_next();  // what a process does once is done
  }

  Runner::Prepared prepare(Fault fault, int variant) {
    const Candidate candidate = candidates_->candidate(fault, variant, profile_);
    const CompileResult compiled = candidates_->compile(candidate, profile_.sm_arch);
    EXPECT_TRUE(compiled) << compiled.error().message;
    if (!compiled) return {};
    return must(runner_->prepare(candidate, **compiled));
  }

  /// The next good candidate is loaded, right, and measured.
  void measure_next() {
    const Runner::Prepared good = prepare(Fault::none, next_variant_++ % 4);
    ASSERT_EQ(to_string(good.step.outcome), "ok") << good.step.detail;
    const auto checked = must(runner_->check(good.id, Runner::CheckDepth::screening));
    EXPECT_EQ(to_string(checked.step.outcome), "ok") << checked.step.detail;
    EXPECT_TRUE(checked.report.exact);
    const std::vector<Runner::Id> order{good.id, Runner::kSmProbe};
    const auto sampled = must(runner_->sample(order));
    EXPECT_EQ(to_string(sampled[0].step.outcome), "ok") << sampled[0].step.detail;
    EXPECT_GT(sampled[0].sample.us, 1);
    EXPECT_LT(sampled[0].sample.us, 1000);
  }

  /// Expects that the candidate ends as `outcome`, and that the next one is measured within 3 s of
  /// its failure. `waited_seconds` must pass before it counts as failed.
  void expect_fault(Fault fault, std::string_view outcome, double waited_seconds = 0) {
    const auto start = std::chrono::steady_clock::now();
    const Runner::Prepared bad = prepare(fault, 0);
    Runner::Step step = bad.step;
    if (step.outcome == Outcome::ok) {
      step = must(runner_->check(bad.id, Runner::CheckDepth::screening)).step;
    }
    EXPECT_EQ(to_string(step.outcome), outcome) << step.detail;
    EXPECT_FALSE(step.detail.empty());
    measure_next();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() -
        waited_seconds;
    std::cout << outcome << ": " << step.detail << "; next sample after " << seconds << " s\n";
    RecordProperty("seconds_to_next_sample", concat(seconds));
    EXPECT_LT(seconds, 3);
    EXPECT_FALSE(runner_->lost());
  }

  ScopedTempDir cache_;
  DeviceProfile profile_;
  std::unique_ptr<FaultyCandidates> candidates_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<Runner> runner_;
  int next_variant_ = 0;
};

TEST_F(WorkerGpuTest, TheGpuIsNotIdleWhileTheTuningProcessThinks) {
  static_cast<void>(runner_->take_use());
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    measure_next();
  }
  const DeviceUse use = runner_->take_use();
  EXPECT_LT(use.longest_idle_seconds, 0.01);
  EXPECT_GT(use.seconds(), 0.2);
  EXPECT_LT(use.idle_seconds(), 0.1 * use.seconds());
}

TEST_F(WorkerGpuTest, AnIllegalAddressCostsTheCandidate) {
  expect_fault(Fault::illegal_address, "illegal_address");
  EXPECT_EQ(runner_->epoch(), 1);
}

TEST_F(WorkerGpuTest, AMisalignedAccessCostsTheCandidate) {
  expect_fault(Fault::misaligned_address, "illegal_address");
  EXPECT_EQ(runner_->epoch(), 1);
}

TEST_F(WorkerGpuTest, AHangCostsTheCandidate) {
  expect_fault(Fault::hang, "timed_out", worker_->options().floor_seconds);
  EXPECT_EQ(runner_->epoch(), 1);
}

TEST_F(WorkerGpuTest, ATrapCostsTheCandidate) {
  expect_fault(Fault::trap, "launch_failed");
  EXPECT_EQ(runner_->epoch(), 1);
}

TEST_F(WorkerGpuTest, WrongOutputCostsTheCandidateAlone) {
  expect_fault(Fault::wrong_output, "wrong_result");
  EXPECT_EQ(runner_->epoch(), 0);
}

TEST_F(WorkerGpuTest, UnwrittenOutputCostsTheCandidateAlone) {
  expect_fault(Fault::unwritten_output, "wrong_result");
  EXPECT_EQ(runner_->epoch(), 0);
}

TEST_F(WorkerGpuTest, AWriteOutOfBoundsCostsTheCandidateAlone) {
  expect_fault(Fault::out_of_bounds_write, "out_of_bounds");
  EXPECT_EQ(runner_->epoch(), 0);
}

TEST_F(WorkerGpuTest, TooMuchMemoryCostsTheCandidateAlone) {
  expect_fault(Fault::out_of_memory, "out_of_memory");
  EXPECT_EQ(runner_->epoch(), 0);
}

TEST_F(WorkerGpuTest, AnAbortInsideTheWorkerCostsNothingTheFirstTime) {
  const Runner::Prepared good = prepare(Fault::none, 1);
  ASSERT_EQ(good.step.outcome, Outcome::ok);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(::kill(worker_->pid(), SIGABRT), 0);
  const auto checked = must(runner_->check(good.id, Runner::CheckDepth::screening));
  EXPECT_EQ(to_string(checked.step.outcome), "ok") << checked.step.detail;
  measure_next();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::cout << "abort; next sample after " << seconds << " s\n";
  RecordProperty("seconds_to_next_sample", concat(seconds));
  EXPECT_LT(seconds, 3);
  EXPECT_EQ(runner_->epoch(), 1);
}

TEST_F(WorkerGpuTest, AFinalistRunsAgainstUnmappedPages) {
  const Runner::Prepared good = prepare(Fault::none, 1);
  const auto checked = must(runner_->check(good.id, Runner::CheckDepth::finalist));
  EXPECT_EQ(to_string(checked.step.outcome), "ok") << checked.step.detail;
  EXPECT_TRUE(checked.report.unmapped);
  const std::vector<Runner::Id> order{good.id};
  ASSERT_TRUE(runner_->sample(order));
  const auto after = must(runner_->check_after_timing(good.id));
  EXPECT_TRUE(after.report.after_timing);
  EXPECT_GT(runner_->launch_gap_us(good.id).value(), 0);
  EXPECT_FALSE(runner_->audit().value().rows.empty());
}

TEST_F(WorkerGpuTest, TheCallersContextStaysGood) {
  auto device = must(open_cuda_device(0));
  auto buffer = must(device->allocate(1 << 20));
  const Runner::Prepared bad = prepare(Fault::illegal_address, 0);
  const auto checked = must(runner_->check(bad.id, Runner::CheckDepth::screening));
  EXPECT_EQ(to_string(checked.step.outcome), "illegal_address");
  EXPECT_TRUE(device->fill(buffer->address(), 1, 1 << 20));
  EXPECT_FALSE(device->lost());
}

}  // namespace
}  // namespace kernwright
