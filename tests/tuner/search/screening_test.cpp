#include "tuner/search/screening.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "tests/results.h"
#include "tests/tuner/scripted_runner.h"
#include "tuner/search/clock_probe.h"

namespace kernwright {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// One candidate of 10 us, which gets the id 0 from `prepare`.
struct ScriptedScreening {
  ScriptedRunner runner;
  Candidate candidate;
  CompiledKernel kernel;
  Screening screening{runner, [this] { return runner.seconds; }};

  ScriptedScreening() {
    runner.time_us = [](Runner::Id id, double) { return id < 0 ? 100.0 : 10.0; };
  }
  Screening::Visit visit(double hopeless_us = kNever) {
    return must(screening.visit(candidate, kernel, hopeless_us));
  }
};

TEST(ReferencesTest, AnotherClockIsNoDisturbance) {
  ClockProbe probe;
  for (int i = 0; i < 10; ++i) {
    probe.add(Runner::kSmProbe, {100, 1980, 0});
    probe.add(Runner::kDramProbe, {50, 1980, 0});
  }
  for (int i = 0; i < 3; ++i) probe.add(Runner::kSmProbe, {132, 1500, 0});
  EXPECT_FALSE(probe.off_by(0.03));
  for (int i = 0; i < 3; ++i) probe.add(Runner::kSmProbe, {132, 1980, 0});
  EXPECT_TRUE(probe.off_by(0.03));
}

TEST(ReferencesTest, DriftIsWhatBothAgreeOn) {
  ClockProbe probe;
  for (int i = 0; i < 20; ++i) {
    probe.add(Runner::kSmProbe, {100, 0, 0});
    probe.add(Runner::kDramProbe, {50, 0, 0});
  }
  EXPECT_EQ(probe.drift(), 0);
  for (int i = 0; i < 3; ++i) probe.add(Runner::kSmProbe, {104, 0, 0});
  EXPECT_EQ(probe.drift(), 0) << "a candidate may follow the other one";
  EXPECT_TRUE(probe.off_by(0.03));
  for (int i = 0; i < 3; ++i) probe.add(Runner::kDramProbe, {51, 0, 0});
  EXPECT_NEAR(probe.drift(), std::log(1.02), 1e-9);
  probe.reset();
  EXPECT_FALSE(probe.off_by(0.001));
}

TEST(ScreeningTest, SettlesWhenTwoBlocksAgree) {
  ScriptedScreening s;
  const auto seconds = must(s.screening.settle());
  EXPECT_NEAR(seconds, 0.2, 0.1);
}

TEST(ScreeningTest, WaitsForADeviceThatWarmsUp) {
  ScriptedScreening s;
  s.runner.time_us = [](Runner::Id, double at) { return 100 * (1 - 0.1 * std::exp(-at / 0.3)); };
  const auto seconds = must(s.screening.settle());
  EXPECT_GT(seconds, 0.6);
  EXPECT_LT(seconds, 2);
  s.runner.time_us = [](Runner::Id, double at) { return 100 * (1 + at); };
  EXPECT_NEAR(*s.screening.settle(), 3, 0.2) << "but not for ever";
}

TEST(ScreeningTest, AVisitTakesTwoSamplesAndAReference) {
  ScriptedScreening s;
  const Screening::Visit visit = s.visit();
  EXPECT_EQ(visit.step.outcome, Outcome::ok);
  EXPECT_EQ(visit.samples_us, (std::vector<double>{10, 10}));
  EXPECT_TRUE(visit.check.exact);
  EXPECT_TRUE(visit.check.after_timing);
  EXPECT_NEAR(s.runner.seconds, 3 * s.runner.sample_seconds, 1e-9);
}

TEST(ScreeningTest, AHopelessFirstSampleIsTheOnlyOne) {
  ScriptedScreening s;
  const Screening::Visit visit = s.visit(9);
  EXPECT_EQ(visit.step.outcome, Outcome::ok);
  EXPECT_EQ(visit.samples_us.size(), 1U);
}

TEST(ScreeningTest, AFailureIsAnOutcome) {
  ScriptedScreening s;
  s.runner.checked = [](Runner::Id, Runner::CheckDepth) { return Outcome::wrong_result; };
  EXPECT_EQ(s.visit().step.outcome, Outcome::wrong_result);
  s.runner.checked = [](Runner::Id, Runner::CheckDepth) { return Outcome::ok; };
  s.runner.outcome = [](Runner::Id, int) { return Outcome::timed_out; };
  EXPECT_EQ(s.visit().step.outcome, Outcome::timed_out);
  s.runner.outcome = [](Runner::Id, int) { return Outcome::ok; };
  s.runner.wrong_after_timing = {0};
  EXPECT_EQ(s.visit().step.outcome, Outcome::wrong_result);
}

TEST(ScreeningTest, ADisturbedVisitIsRepeatedWhenTheReferencesAreBack) {
  ScriptedScreening s;
  for (int i = 0; i < 30; ++i) s.visit();
  const double begin = s.runner.seconds;
  s.runner.time_us = [&](Runner::Id id, double at) {
    return (id < 0 ? 100.0 : 10.0) * (at < begin + 0.5 ? 1.2 : 1);
  };
  Screening::Visit visit;
  while (s.runner.seconds < begin + 0.5) visit = s.visit();
  EXPECT_EQ(visit.samples_us, (std::vector<double>{10, 10}));
  EXPECT_EQ(s.screening.audit().trust(), Trust::a);
}

TEST(ScreeningTest, AChangeForGoodIsWaitedForOnce) {
  ScriptedScreening s;
  for (int i = 0; i < 30; ++i) s.visit();
  s.runner.time_us = [](Runner::Id id, double) { return id < 0 ? 110.0 : 11.0; };
  const double begin = s.runner.seconds;
  for (int i = 0; i < 30; ++i) s.visit();
  EXPECT_NEAR(s.runner.seconds - begin, 3.2, 0.2);
  EXPECT_EQ(s.screening.audit().trust(), Trust::a);
}

TEST(ScreeningTest, TheThirdDisturbanceCostsTheTrust) {
  ScriptedScreening s;
  for (int disturbance = 0; disturbance < 3; ++disturbance) {
    s.runner.time_us = [](Runner::Id id, double) { return id < 0 ? 100.0 : 10.0; };
    for (int i = 0; i < 80; ++i) s.visit();
    EXPECT_EQ(s.screening.audit().trust(), Trust::a);
    const double begin = s.runner.seconds;
    s.runner.time_us = [begin](Runner::Id id, double at) {
      return (id < 0 ? 100.0 : 10.0) * (at < begin + 0.5 ? 1.2 : 1);
    };
    while (s.runner.seconds < begin + 0.6) s.visit();
  }
  EXPECT_EQ(s.screening.audit().trust(), Trust::c);
}

TEST(ScreeningTest, AFailingReferenceEndsTheScreening) {
  class Broken final : public Runner {
   public:
    Result<Prepared> prepare(const Candidate&, const CompiledKernel&) override {
      return Prepared{};
    }
    Result<Checked> check(Id, CheckDepth) override { return Checked{}; }
    Result<Checked> check_after_timing(Id) override { return Checked{}; }
    Result<std::vector<Sampled>> sample(std::span<const Id> order) override {
      return std::vector<Sampled>(order.size(), {{Outcome::timed_out, "hangs"}, {}});
    }
    Result<double> launch_gap_us(Id) override { return 0.0; }
    Result<Audit> audit() override { return Audit{}; }
    void drop(Id) override {}
    bool lost() const override { return false; }
  } runner;
  Screening screening(runner, [] { return 0.0; });
  EXPECT_THAT(screening.top_up({}), Fails(ErrorCode::device));
}

}  // namespace
}  // namespace kernwright
