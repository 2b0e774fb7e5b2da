#include "tuner/simulation/selection_trial.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "support/text.h"
#include "tuner/race.h"

namespace kernwright {
namespace {

constexpr std::size_t kScreeningSamples = 2;
constexpr int kWarmUpSamples = 300;
constexpr double kBlockSeconds = 60;

/// A device that has run references for a while.
struct Session {
  VirtualClock clock;
  SimulatedRunner runner;

  Session(const RecordedSpace& space, const BareCandidates& candidates,
          const SimulationOptions& options)
      : runner(space, candidates, clock, options) {}

  Result<void> warm_up() {
    const std::vector<Runner::Id> order(kWarmUpSamples, Runner::kSmReference);
    if (auto sampled = runner.sample(order); !sampled) return sampled.error();
    return {};
  }
};

/// The id of a candidate that loads and is right; -1 of others.
Result<Runner::Id> load(Runner& runner, const Candidate& candidate) {
  auto prepared = runner.prepare(candidate, CompiledKernel{});
  if (!prepared) return prepared.error();
  if (prepared->step.outcome != Outcome::ok) return Runner::Id{-1};
  auto checked = runner.check(prepared->id, Runner::CheckDepth::screening);
  if (!checked) return checked.error();
  return checked->step.outcome == Outcome::ok ? prepared->id : -1;
}

/// Samples of one candidate, one after another; none where it failed.
Result<std::vector<double>> sample(Runner& runner, Runner::Id id, std::size_t count) {
  const std::vector<Runner::Id> order(count, id);
  auto sampled = runner.sample(order);
  if (!sampled) return sampled.error();
  std::vector<double> samples_us;
  for (const Runner::Sampled& one : *sampled) {
    if (one.step.outcome != Outcome::ok) return std::vector<double>{};
    samples_us.push_back(one.sample.us);
  }
  return samples_us;
}

/// A candidate that passed screening.
struct Passed {
  std::size_t configuration = 0;
  Contender contender;
};

Result<std::vector<Passed>> screen(Runner& runner, const RecordedSpace& space,
                                   const BareCandidates& candidates) {
  std::vector<Passed> passed;
  for (std::size_t i = 0; i < space.configurations.size(); ++i) {
    const RecordedConfiguration& recorded = space.configurations[i];
    auto id = load(runner, candidates[i]);
    if (!id) return id.error();
    if (*id < 0) continue;
    auto samples_us = sample(runner, *id, kScreeningSamples);
    if (!samples_us) return samples_us.error();
    if (samples_us->empty()) continue;
    Passed one{i, {.id = *id, .traits = {}, .samples_us = std::move(*samples_us)}};
    one.contender.traits.id = candidates[i].id();
    one.contender.traits.is_default = i == space.default_index;
    one.contender.traits.registers = recorded.registers;
    one.contender.traits.smem_bytes = recorded.smem_bytes;
    passed.push_back(std::move(one));
  }
  return passed;
}

}  // namespace

Result<SelectionTrial> run_selection_trial(const RecordedSpace& space,
                                           const BareCandidates& candidates,
                                           const SimulationOptions& options, bool power_blocks) {
  Session session(space, candidates, options);
  if (auto warm = session.warm_up(); !warm) return warm.error();
  auto passed = screen(session.runner, space, candidates);
  if (!passed) return passed.error();
  std::vector<Contender> contenders;
  double best_us = std::numeric_limits<double>::infinity();
  for (const Passed& one : *passed) {
    contenders.push_back(one.contender);
    best_us = std::min(best_us, session.runner.true_us(one.configuration));
  }
  RaceOptions race_options;
  race_options.seed = options.seed;
  race_options.power_blocks = power_blocks;
  if (power_blocks) race_options.seconds = kBlockSeconds;
  race_options.clock_seconds = [&session] { return session.clock.seconds(); };
  auto raced = race(session.runner, contenders, race_options);
  if (!raced) return raced.error();
  if (raced->finalists.empty()) {
    return Error{ErrorCode::not_found, concat("no candidate of ", space.name, " passed")};
  }
  const auto regret = [&](std::size_t configuration) {
    return session.runner.true_us(configuration) / best_us - 1;
  };

  SelectionTrial trial;
  trial.winner = (*passed)[raced->finalists[raced->decision.winner].contender].configuration;
  trial.regret = regret(trial.winner);
  trial.verdict = raced->decision.verdict;
  trial.trust = raced->audit.trust();
  trial.power_limited = raced->power_limited;
  trial.rounds = static_cast<int>(raced->rounds.sm_reference_us.size());
  trial.samples = session.runner.samples_taken();
  trial.seconds = session.clock.seconds();

  Session plain(space, candidates, options);
  if (auto warm = plain.warm_up(); !warm) return warm.error();
  const std::size_t each =
      std::max<std::size_t>(static_cast<std::size_t>(trial.samples) / passed->size(), 1);
  double least_min = std::numeric_limits<double>::infinity();
  double least_median = least_min;
  for (const Passed& one : *passed) {
    auto id = load(plain.runner, candidates[one.configuration]);
    if (!id) return id.error();
    auto samples_us = *id < 0 ? std::vector<double>{} : sample(plain.runner, *id, each);
    if (!samples_us) return samples_us.error();
    if (samples_us->empty()) continue;
    const Measurement measured{.samples_us = std::move(*samples_us)};
    if (measured.min_us() < least_min) {
      least_min = measured.min_us();
      trial.regret_of_min = regret(one.configuration);
    }
    if (measured.median_us() < least_median) {
      least_median = measured.median_us();
      trial.regret_of_median = regret(one.configuration);
    }
  }
  return trial;
}

}  // namespace kernwright
