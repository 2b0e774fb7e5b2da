#include "bench/simulation/simulated_runner.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <vector>

#include "bench/simulation/synthetic_space.h"
#include "tests/results.h"

namespace kernwright {
namespace {

using Id = Runner::Id;

/// A space with its runner.
class Simulation {
 public:
  Simulation(RecordedSpace space, const NoiseModel& noise, std::uint64_t seed = 1)
      : space_(std::move(space)),
        runner(space_, candidates, clock, {.noise = noise, .seed = seed}) {}
  Simulation(RecordedSpace space, std::string_view noise, std::uint64_t seed = 1)
      : Simulation(std::move(space), parse_noise(noise).value(), seed) {}

  Id prepare(std::size_t index) {
    return runner.prepare(candidates[index], CompiledKernel{}).value().id;
  }
  std::vector<Sample> sample(Id id, std::size_t count) {
    const std::vector<Id> order(count, id);
    std::vector<Sample> samples;
    const auto sampled = runner.sample(order).value();
    for (const Runner::Sampled& one : sampled) samples.push_back(one.sample);
    return samples;
  }
  Runner::Step step(Id id) {
    const std::vector<Id> order{id};
    const auto sampled = runner.sample(order).value();
    return sampled.front().step;
  }

 private:
  RecordedSpace space_;

 public:
  BareCandidates candidates{space_};
  VirtualClock clock;
  SimulatedRunner runner;
};

RecordedSpace two(double best_us = 100) {
  return gap_space("two", best_us, std::vector<double>{0, 0.02});
}

/// One configuration whose i-th recorded sample takes 100 + i.
RecordedSpace counted(std::size_t samples) {
  RecordedSpace space = gap_space("counted", 100, std::vector<double>{0});
  space.configurations[0].samples_us.clear();
  for (std::size_t i = 0; i < samples; ++i) {
    space.configurations[0].samples_us.push_back(100 + static_cast<double>(i));
  }
  return space;
}

TEST(SimulatedRunnerTest, RefusesWhatWasNotRecorded) {
  Simulation simulation(two(), "none");
  Candidate other = simulation.candidates[0];
  other.configuration = Configuration({{"N", 7}});
  EXPECT_THAT(simulation.runner.prepare(other, CompiledKernel{}),
              Fails(ErrorCode::not_found, "the recorded space two has no synthetic N=7"));
}

TEST(SimulatedRunnerTest, WithoutNoiseTimesAreTrue) {
  Simulation simulation(two(), "none");
  const Id id = simulation.prepare(1);
  for (const Sample& sample : simulation.sample(id, 5)) EXPECT_DOUBLE_EQ(sample.us, 102);
  EXPECT_DOUBLE_EQ(simulation.runner.true_us(1, true), 102);
}

TEST(SimulatedRunnerTest, ASampleCostsItsLengthAndLongOnesTheirTime) {
  Simulation fast(two(100), "none");
  Simulation slow(two(20000), "none");
  for (Simulation* simulation : {&fast, &slow}) {
    const Id id = simulation->prepare(0);
    const double before = simulation->clock.seconds();
    const std::vector<Sample> samples = simulation->sample(id, 10);
    const double spent = simulation->clock.seconds() - before;
    EXPECT_NEAR(spent, simulation == &fast ? 0.0153 : 0.2003, 1e-3);
    EXPECT_DOUBLE_EQ(samples.back().at_seconds, simulation->clock.seconds());
  }
}

TEST(SimulatedRunnerTest, LoadingAndTheHostsTurnsAreIdleTime) {
  Simulation simulation(two(), "none");
  const Id first = simulation.prepare(0);
  simulation.sample(first, 3);
  simulation.clock.advance(0.025);
  simulation.sample(simulation.prepare(1), 1);
  const DeviceUse use = simulation.runner.take_use();
  EXPECT_NEAR(use.busy_seconds, 3 * 15 * 100e-6 + 15 * 102e-6, 1e-4);
  EXPECT_NEAR(use.longest_idle_seconds, 0.025 + 0.002 + 30e-6, 1e-9);
  EXPECT_NEAR(use.idle_seconds(), 0.027 + 3 * 30e-6, 1e-9);
  EXPECT_EQ(simulation.runner.take_use().busy_seconds, 0);
}

TEST(SimulatedRunnerTest, ReplaysContiguousBlocksOfTheSteadyHalf) {
  Simulation simulation(counted(32), "none");
  const std::vector<Sample> samples = simulation.sample(simulation.prepare(0), 8000);
  std::map<int, int> seen;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const int at = static_cast<int>(std::lround(samples[i].us)) - 116;
    ++seen[at];
    if (i % 8 != 0) {
      EXPECT_EQ(at, (std::lround(samples[i - 1].us) - 116 + 1) % 16);
    }
  }
  ASSERT_EQ(seen.size(), 16U);
  for (const auto& [at, count] : seen) EXPECT_NEAR(count, 500, 150) << at;
}

TEST(SimulatedRunnerTest, ReplaysTheBeginningAfterIdle) {
  Simulation simulation(counted(32), "transient");
  const Id id = simulation.prepare(0);
  EXPECT_DOUBLE_EQ(simulation.sample(id, 3).back().us, 102);
  EXPECT_DOUBLE_EQ(simulation.sample(id, 2).back().us, 104) << "not idle in between";
  simulation.sample(id, 30);
  simulation.clock.advance(0.1);
  EXPECT_DOUBLE_EQ(simulation.sample(id, 1).back().us, 100);
}

TEST(SimulatedRunnerTest, ABoostMakesTheFirstSamplesTooFast) {
  Simulation simulation(two(), "transient=-10");
  const std::vector<Sample> samples = simulation.sample(simulation.prepare(0), 30);
  EXPECT_LT(samples.front().us, 96);
  EXPECT_NEAR(samples.back().us, 100, 0.1);
}

TEST(SimulatedRunnerTest, ReferencesAndCandidatesShareTheClock) {
  NoiseModel noise;
  noise.throttle = {.slowdown = {0.1, 0.1}, .seconds = {5, 5}, .first_at_seconds = 1};
  Simulation simulation(two(), noise);
  const Id id = simulation.prepare(0);
  const std::vector<Id> order{id, Runner::kSmProbe, Runner::kDramProbe};
  const auto before = simulation.runner.sample(order).value();
  simulation.clock.advance_to(2);
  const auto during = simulation.runner.sample(order).value();
  for (std::size_t i = 0; i < order.size(); ++i) {
    EXPECT_NEAR(during[i].sample.us / before[i].sample.us, 1 / 0.9, 1e-9);
    EXPECT_NEAR(during[i].sample.sm_mhz / before[i].sample.sm_mhz, 0.9, 1e-9);
  }
}

TEST(SimulatedRunnerTest, ForeignLoadSlowsEverythingAndLowersTrust) {
  NoiseModel noise;
  noise.foreign_load = {.slowdown = {0.2, 0.2}, .seconds = {1, 1}, .first_at_seconds = 1};
  Simulation simulation(two(), noise);
  const Id id = simulation.prepare(0);
  const std::vector<Id> order{id, Runner::kSmProbe};
  EXPECT_EQ(simulation.runner.audit()->trust(), Trust::a);
  simulation.clock.advance_to(1.5);
  const auto during = simulation.runner.sample(order).value();
  EXPECT_DOUBLE_EQ(during[0].sample.us, 120);
  EXPECT_DOUBLE_EQ(during[1].sample.us, 120);
  EXPECT_DOUBLE_EQ(during[0].sample.sm_mhz, 1980);
  EXPECT_EQ(simulation.runner.audit()->trust(), Trust::c);
  EXPECT_EQ(simulation.runner.audit()->trust(), Trust::a) << "since the last audit";
}

TEST(SimulatedRunnerTest, TheBestSlowsEverybodyDownWhileItRunsAlone) {
  Simulation simulation(two(), "best_step");
  const Id best = simulation.prepare(0);
  const Id second = simulation.prepare(1);
  const std::vector<Sample> samples = simulation.sample(best, 800);
  const double alone = simulation.runner.true_us(0, true);
  EXPECT_GT(alone, 105);
  EXPECT_LT(samples.front().us, 101);
  EXPECT_NEAR(samples.back().us, alone, 1e-9);
  EXPECT_DOUBLE_EQ(simulation.runner.true_us(0, false), 100);
  EXPECT_NEAR(samples.back().us * samples.back().sm_mhz, 100 * 1980, 1e-6) << "the clock shows it";
  const std::vector<Sample> after = simulation.sample(second, 800);
  EXPECT_GT(after.front().us, 106) << "the clock is the device's";
  EXPECT_NEAR(after.back().us, 102, 1e-9);
}

TEST(SimulatedRunnerTest, TicksRoundOneLaunchAndVanishInABatch) {
  Simulation one(two(3000), "tick=4");
  for (const Sample& sample : one.sample(one.prepare(1), 20)) {
    EXPECT_NEAR(std::remainder(sample.us, 4), 0, 1e-9);
  }
  Simulation many(two(10), "tick=4");
  for (const Sample& sample : many.sample(many.prepare(0), 20)) EXPECT_NEAR(sample.us, 10, 0.03);
}

TEST(SimulatedRunnerTest, SampleNoiseAndOutliersHaveTheirSize) {
  Simulation simulation(two(), "samples=1+outliers=1");
  std::vector<double> errors;
  for (const Sample& sample : simulation.sample(simulation.prepare(0), 20000)) {
    errors.push_back(std::log(sample.us / 100));
  }
  const auto beyond =
      std::count_if(errors.begin(), errors.end(), [](double e) { return e > 0.045; });
  EXPECT_NEAR(static_cast<double>(beyond), 200, 60);
  std::sort(errors.begin(), errors.end());
  EXPECT_NEAR(errors[errors.size() * 841 / 1000] - errors[errors.size() * 159 / 1000], 0.02, 0.002);
}

TEST(SimulatedRunnerTest, RecordedFailuresComeWhereTheyBelong) {
  RecordedSpace space = gap_space("failing", 100, std::vector<double>{0, 0, 0});
  space.configurations[0].outcome = Outcome::launch_failed;
  space.configurations[1].outcome = Outcome::illegal_address;
  Simulation simulation(std::move(space), "none");
  const auto refused =
      simulation.runner.prepare(simulation.candidates[0], CompiledKernel{}).value();
  EXPECT_EQ(refused.step.outcome, Outcome::launch_failed);
  const Id wrong = simulation.prepare(1);
  EXPECT_EQ(simulation.runner.check(wrong, Runner::CheckDepth::screening)->step.outcome,
            Outcome::illegal_address);
  EXPECT_EQ(simulation.step(wrong).outcome, Outcome::illegal_address);
  const Id right = simulation.prepare(2);
  EXPECT_EQ(simulation.step(right).outcome, Outcome::ok);
}

TEST(SimulatedRunnerTest, EveryDrawnFailureIsFinalAndNamed) {
  Simulation simulation(synthetic_space(Landscape::bowl, 100, 1), "failures=100");
  int late = 0;
  for (std::size_t i = 0; i < 200; ++i) {
    const auto prepared =
        must(simulation.runner.prepare(simulation.candidates[i], CompiledKernel{}));
    if (prepared.step.outcome != Outcome::ok) continue;
    const auto checked = must(simulation.runner.check(prepared.id, Runner::CheckDepth::screening));
    if (checked.step.outcome != Outcome::ok) continue;
    ++late;
    const std::vector<Id> order(60, prepared.id);
    const auto sampled = simulation.runner.sample(order).value();
    EXPECT_NE(sampled.back().step.outcome, Outcome::ok);
    EXPECT_EQ(sampled[58].step.detail, sampled[59].step.detail);
    const double before = simulation.clock.seconds();
    EXPECT_EQ(simulation.step(prepared.id).outcome, sampled.back().step.outcome);
    EXPECT_EQ(simulation.clock.seconds(), before) << "it is not run again";
  }
  EXPECT_GT(late, 10);
}

TEST(SimulatedRunnerTest, ALostDeviceIsLost) {
  RecordedSpace space = two();
  space.configurations[0].outcome = Outcome::device_lost;
  Simulation simulation(std::move(space), "none");
  const Id id = simulation.prepare(0);
  EXPECT_FALSE(simulation.runner.lost());
  simulation.runner.check(id, Runner::CheckDepth::screening).value();
  EXPECT_TRUE(simulation.runner.lost());
}

TEST(SimulatedRunnerTest, ARestartBeginsAnEpochAndKeepsTheCandidates) {
  Simulation simulation(two(), "restart=0.5");
  const Id id = simulation.prepare(0);
  simulation.sample(id, 10);
  EXPECT_EQ(simulation.runner.epoch(), 0);
  simulation.clock.advance_to(0.6);
  const double after = simulation.sample(id, 1).front().us;
  EXPECT_EQ(simulation.runner.epoch(), 1);
  EXPECT_GT(simulation.clock.seconds(), 1.5) << "a new process takes its time";
  EXPECT_NE(after, 100) << "and measures a little differently";
  EXPECT_NEAR(after, 100, 2);
}

TEST(SimulatedRunnerTest, ACandidatesSamplesDoNotDependOnTheOthers) {
  Simulation alone(counted(32), "samples=1");
  Simulation together(counted(32), "samples=1");
  const Id id = alone.prepare(0);
  const Id same = together.prepare(0);
  const std::vector<Id> order{Runner::kSmProbe, same, Runner::kDramProbe, same};
  const auto sampled = together.runner.sample(order).value();
  const std::vector<Sample> samples = alone.sample(id, 2);
  EXPECT_EQ(samples[0].us, sampled[1].sample.us);
  EXPECT_EQ(samples[1].us, sampled[3].sample.us);
}

}  // namespace
}  // namespace kernwright
