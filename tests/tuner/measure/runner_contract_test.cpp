#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "bench/simulation/simulated_runner.h"
#include "bench/simulation/synthetic_space.h"
#include "compile/render.h"
#include "tests/doubles/fake_device.h"
#include "tests/doubles/host_data_ops.h"
#include "tests/results.h"
#include "tests/tuner/toy.h"
#include "tuner/measure/device_runner.h"

namespace kernwright {
namespace {

using Id = Runner::Id;

/// A runner with candidates for it: three that are right and one that fails when it is checked.
class RunnerWorld {
 public:
  virtual ~RunnerWorld() = default;
  virtual Runner& runner() = 0;
  virtual const Candidate& good(std::size_t index) = 0;
  virtual const Candidate& bad() = 0;
  virtual std::shared_ptr<const CompiledKernel> kernel(const Candidate&) {
    return std::make_shared<CompiledKernel>();
  }
};

class LandscapeWorld final : public RunnerWorld {
 public:
  LandscapeWorld() {
    const KernelTemplate& plain = *(*toy_).kernel_template("toy/plain").value();
    for (int a = 1; a <= 4; ++a) {
      candidates_.push_back(make_candidate(plain, toy_.problem(),
                                           Configuration({{"A", a}, {"B", 1}, {"R", 1}}), profile_)
                                .value());
    }
    runner_.outcome = [](const Candidate& candidate) {
      return candidate.configuration.at("A") == 4 ? Outcome::wrong_result : Outcome::ok;
    };
  }
  Runner& runner() override { return runner_; }
  const Candidate& good(std::size_t index) override { return candidates_[index]; }
  const Candidate& bad() override { return candidates_[3]; }

 private:
  ToyCatalog toy_;
  DeviceProfile profile_ = find_profile("h200").value();
  std::vector<Candidate> candidates_;
  LandscapeRunner runner_;
};

class SimulatedWorld final : public RunnerWorld {
 public:
  explicit SimulatedWorld(RecordedSpace space) : space_(std::move(space)) {
    space_.configurations.back().outcome = Outcome::wrong_result;
    runner_ = std::make_unique<SimulatedRunner>(
        space_, candidates_, clock_,
        SimulationOptions{.noise = parse_noise("samples+drift+throttle+outliers+tick").value()});
  }
  Runner& runner() override { return *runner_; }
  const Candidate& good(std::size_t index) override { return candidates_[index]; }
  const Candidate& bad() override { return candidates_[candidates_.all().size() - 1]; }

 private:
  RecordedSpace space_;
  BareCandidates candidates_{space_};
  VirtualClock clock_;
  std::unique_ptr<SimulatedRunner> runner_;
};

/// The device runner on a fake device whose programs copy a to c.
class FakeDeviceWorld final : public RunnerWorld {
 public:
  FakeDeviceWorld() {
    FakeDeviceOptions options;
    options.profile = profile_;
    options.profile.l2_bytes = 1 << 20;
    options.landscape = [](std::string_view cubin, const ExecutionPlan&) {
      FakeBehavior behavior;
      const int a = config_value(cubin, "A");
      behavior.time_us = a < 0 ? 100 : 10 * a;
      if (a == 4) behavior.outcome = Outcome::wrong_result;
      return behavior;
    };
    options.compute = [](const ExecutionPlan& plan, const LaunchArguments& arguments) {
      const auto elements = static_cast<std::size_t>(plan.tensors[0].elements());
      const auto* const from = reinterpret_cast<const float*>(arguments.tensors[0]);
      const bool reference = !arguments.references.empty();
      auto* const to =
          reinterpret_cast<float*>(reference ? arguments.references[1] : arguments.tensors[1]);
      std::copy(from, from + elements, to);
      if (!reference) return;
      std::transform(from, from + elements, reinterpret_cast<float*>(arguments.magnitudes[1]),
                     [](float x) { return std::fabs(x); });
    };
    device_ = make_fake_device(std::move(options), clock_);
    const KernelTemplate& plain = *(*toy_).kernel_template("toy/plain").value();
    for (int a = 1; a <= 4; ++a) {
      candidates_.push_back(make_candidate(plain, toy_.problem(),
                                           Configuration({{"A", a}, {"B", 1}, {"R", 1}}), profile_)
                                .value());
    }
    runner_ = open_device_runner(*device_, *ops_, toy_.problem(), *toy_, pool_, {}).value();
  }
  Runner& runner() override { return *runner_; }
  const Candidate& good(std::size_t index) override { return candidates_[index]; }
  const Candidate& bad() override { return candidates_[3]; }
  std::shared_ptr<const CompiledKernel> kernel(const Candidate& candidate) override {
    return pool_.submit(render(candidate, *toy_, 90)).get().value();
  }

 private:
  ToyCatalog toy_;
  DeviceProfile profile_ = find_profile("h200").value();
  ManualClock clock_;
  CompilePool pool_{std::make_shared<FakeCompiler>(), {.threads = 1}};
  std::unique_ptr<DataOps> ops_ = make_host_data_ops();
  std::unique_ptr<Device> device_;
  std::vector<Candidate> candidates_;
  std::unique_ptr<Runner> runner_;
};

/// A recording of four configurations with ten samples each.
RecordedSpace recording() {
  RecordedSpace space = gap_space("recording", 100, std::vector<double>{0, 0.01, 0.02, 0.03});
  for (RecordedConfiguration& one : space.configurations) {
    const double us = one.truth_us;
    one.samples_us = {us * 2, us * 1.2, us, us, us * 1.1, us * 1.01, us, us, us * 0.99, us};
  }
  return space;
}

struct Kind {
  const char* name;
  std::unique_ptr<RunnerWorld> (*make)();
};

const Kind kKinds[] = {
    {"Landscape", [] { return std::unique_ptr<RunnerWorld>(std::make_unique<LandscapeWorld>()); }},
    {"FakeDevice",
     [] { return std::unique_ptr<RunnerWorld>(std::make_unique<FakeDeviceWorld>()); }},
    {"Replay",
     [] { return std::unique_ptr<RunnerWorld>(std::make_unique<SimulatedWorld>(recording())); }},
    {"Synthetic",
     [] {
       return std::unique_ptr<RunnerWorld>(
           std::make_unique<SimulatedWorld>(synthetic_space(Landscape::bowl, 50, 1)));
     }},
};

class RunnerContractTest : public ::testing::TestWithParam<Kind> {
 protected:
  Runner& runner() { return world_->runner(); }
  Id prepare(const Candidate& candidate) { return prepare_in(*world_, candidate); }
  static Id prepare_in(RunnerWorld& world, const Candidate& candidate) {
    const auto prepared = world.runner().prepare(candidate, *world.kernel(candidate));
    EXPECT_TRUE(prepared);
    EXPECT_EQ(prepared->step.outcome, Outcome::ok) << prepared->step.detail;
    return prepared->id;
  }

  std::unique_ptr<RunnerWorld> world_ = GetParam().make();
};

TEST_P(RunnerContractTest, IdsAreDistinctAndNotNegative) {
  const Id first = prepare(world_->good(0));
  const Id second = prepare(world_->good(1));
  EXPECT_GE(first, 0);
  EXPECT_GE(second, 0);
  EXPECT_NE(first, second);
}

TEST_P(RunnerContractTest, SamplesEveryEntryOfTheOrder) {
  const Id a = prepare(world_->good(0));
  const Id b = prepare(world_->good(1));
  const std::vector<Id> order{Runner::kSmProbe, a, b, a, a, Runner::kDramProbe};
  const auto sampled = must(runner().sample(order));
  ASSERT_EQ(sampled.size(), order.size());
  double last_seconds = 0;
  for (const Runner::Sampled& one : sampled) {
    EXPECT_EQ(one.step.outcome, Outcome::ok);
    EXPECT_GT(one.sample.us, 0);
    EXPECT_GT(one.sample.at_seconds, last_seconds);
    last_seconds = one.sample.at_seconds;
  }
}

TEST_P(RunnerContractTest, AnEmptyOrderGivesNothing) {
  const auto sampled = must(runner().sample({}));
  EXPECT_TRUE(sampled.empty());
}

TEST_P(RunnerContractTest, ReferencesNeedNoCandidate) {
  const std::vector<Id> order{Runner::kSmProbe, Runner::kDramProbe};
  const auto sampled = must(runner().sample(order));
  EXPECT_GT(sampled.at(0).sample.us, 0);
  EXPECT_GT(sampled.at(1).sample.us, 0);
}

TEST_P(RunnerContractTest, WhatIsWrongFailsItsCheckAndOthersGoOn) {
  const auto bad = must(runner().prepare(world_->bad(), *world_->kernel(world_->bad())));
  ASSERT_EQ(bad.step.outcome, Outcome::ok);
  const auto checked = must(runner().check(bad.id, Runner::CheckDepth::screening));
  EXPECT_EQ(checked.step.outcome, Outcome::wrong_result);
  EXPECT_FALSE(checked.step.detail.empty());
  runner().drop(bad.id);

  const Id good = prepare(world_->good(0));
  for (const auto depth : {Runner::CheckDepth::screening, Runner::CheckDepth::finalist}) {
    const auto passed = must(runner().check(good, depth));
    EXPECT_EQ(passed.step.outcome, Outcome::ok);
    EXPECT_GT(passed.report.elements, 0);
  }
  const auto after = must(runner().check_after_timing(good));
  EXPECT_EQ(after.step.outcome, Outcome::ok);
  EXPECT_FALSE(runner().lost());
}

TEST_P(RunnerContractTest, DroppingOneLeavesTheOthers) {
  const Id a = prepare(world_->good(0));
  const Id b = prepare(world_->good(1));
  runner().drop(a);
  const std::vector<Id> order{b, b};
  const auto sampled = must(runner().sample(order));
  EXPECT_EQ(sampled.at(1).step.outcome, Outcome::ok);
  EXPECT_GE(prepare(world_->good(0)), 0) << "a dropped candidate can be prepared again";
}

TEST_P(RunnerContractTest, EqualRunnersGiveEqualSamples) {
  const std::unique_ptr<RunnerWorld> other = GetParam().make();
  std::vector<std::vector<double>> times;
  for (RunnerWorld* world : {world_.get(), other.get()}) {
    const Id a = prepare_in(*world, world->good(0));
    const Id b = prepare_in(*world, world->good(2));
    std::vector<Id> order;
    for (int round = 0; round < 50; ++round) {
      order.insert(order.end(), {a, Runner::kSmProbe, b, Runner::kDramProbe});
    }
    const auto sampled = must(world->runner().sample(order));
    auto& of_world = times.emplace_back();
    for (const Runner::Sampled& one : sampled) {
      of_world.insert(of_world.end(), {one.sample.us, one.sample.sm_mhz, one.sample.at_seconds});
    }
  }
  EXPECT_EQ(times[0], times[1]);
}

TEST_P(RunnerContractTest, TheLaunchGapAndTheAuditAreThere) {
  const Id id = prepare(world_->good(0));
  const auto gap = must(runner().launch_gap_us(id));
  EXPECT_GE(gap, 0);
  const auto audit = must(runner().audit());
  EXPECT_EQ(audit.trust(), Trust::a);
}

INSTANTIATE_TEST_SUITE_P(All, RunnerContractTest, ::testing::ValuesIn(kKinds),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace kernwright
