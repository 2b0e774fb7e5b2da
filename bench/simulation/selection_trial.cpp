#include "bench/simulation/selection_trial.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "support/statistics.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/finals/race.h"
#include "tuner/search/screening.h"

namespace kernwright {
namespace {

constexpr double kMostSettleSeconds = 1;
constexpr double kHopeless = 2;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// The configurations of a space on a device of their own.
class Session {
 public:
  Session(const RecordedSpace& space, const BareCandidates& candidates,
          const SimulationOptions& options)
      : space_(space),
        candidates_(candidates),
        runner_(space, candidates, clock_, options),
        screening_(runner_, [this] { return clock_.seconds(); }, kMostSettleSeconds) {}

  Result<void> screen();
  Result<RaceResult> race(const RaceOptions& options);
  /// Takes as many samples of each of `configurations`, one candidate after another, and finds the
  /// smallest minimum and the smallest median.
  struct Plain {
    std::size_t of_min = 0;
    std::size_t of_median = 0;
  };
  Result<Plain> choose_plainly(std::span<const std::size_t> configurations, std::size_t samples);

  const SimulatedRunner& runner() const { return runner_; }
  double seconds() const { return clock_.seconds(); }
  /// The configurations that passed screening, in the order of the survivors.
  const std::vector<std::size_t>& passed() const { return passed_; }
  /// Returns the audit of the environment.
  Result<Audit> audit();

 private:
  const RecordedSpace& space_;
  const BareCandidates& candidates_;
  VirtualClock clock_;
  SimulatedRunner runner_;
  Screening screening_;
  std::vector<std::size_t> passed_;
  std::vector<Survivor> survivors_;
};

Result<void> Session::screen() {
  KW_TRY(screening_.settle());
  const CompiledKernel kernel;
  double best_us = kInfinite;
  for (std::size_t i = 0; i < space_.configurations.size(); ++i) {
    KW_ASSIGN(auto visited, screening_.visit(candidates_[i], kernel, kHopeless * best_us));
    if (visited.step.outcome != Outcome::ok) continue;
    const RecordedConfiguration& recorded = space_.configurations[i];
    Survivor survivor;
    survivor.id = visited.id;
    for (double& us : visited.samples_us) {
      us *= std::exp(-visited.drift);
      best_us = std::min(best_us, us);
    }
    survivor.choice = candidates_[i].choice();
    survivor.traits.is_default = i == space_.default_index;
    survivor.traits.resources.registers = recorded.registers;
    survivor.traits.smem_bytes = recorded.smem_bytes;
    survivor.score_us = median(std::move(visited.samples_us));
    survivors_.push_back(std::move(survivor));
    passed_.push_back(i);
  }
  if (passed_.empty()) {
    return Error{ErrorCode::not_found, concat("no candidate of ", space_.name, " passed")};
  }
  return {};
}

Result<RaceResult> Session::race(const RaceOptions& options) {
  RaceOptions own = options;
  own.clock_seconds = [this] { return clock_.seconds(); };
  return kernwright::race(runner_, survivors_, own);
}

Result<Audit> Session::audit() {
  auto audit = runner_.audit();
  if (audit) audit->merge(screening_.audit());
  return audit;
}

Result<Session::Plain> Session::choose_plainly(std::span<const std::size_t> configurations,
                                               std::size_t samples) {
  KW_TRY(screening_.settle());
  Plain plain;
  double least_min = kInfinite;
  double least_median = kInfinite;
  for (const std::size_t i : configurations) {
    KW_ASSIGN(auto prepared, runner_.prepare(candidates_[i], CompiledKernel{}));
    if (prepared.step.outcome != Outcome::ok) continue;
    const std::vector<Runner::Id> order(samples, prepared.id);
    KW_ASSIGN(auto sampled, runner_.sample(order));
    if (sampled.back().step.outcome != Outcome::ok) continue;
    Measurement measured;
    for (const Runner::Sampled& one : sampled) measured.samples_us.push_back(one.sample.us);
    if (measured.min_us() < least_min) {
      least_min = measured.min_us();
      plain.of_min = i;
    }
    if (measured.median_us() < least_median) {
      least_median = measured.median_us();
      plain.of_median = i;
    }
  }
  return plain;
}

}  // namespace

Result<SelectionTrial> run_selection_trial(const RecordedSpace& space,
                                           const BareCandidates& candidates,
                                           const SelectionOptions& options) {
  Session session(space, candidates, options.simulation);
  KW_TRY(session.screen());
  RaceOptions race_options;
  race_options.random_seed = options.simulation.seed;
  race_options.alone = options.power_limited;
  race_options.long_blocks = options.long_blocks;
  KW_ASSIGN(auto raced, session.race(race_options));
  if (raced.finalists.empty()) {
    return Error{ErrorCode::not_found, concat("every finalist of ", space.name, " failed")};
  }
  KW_ASSIGN(auto audit, session.audit());
  audit.merge(raced.audit);

  std::vector<std::size_t> sound;
  for (std::size_t at = 0; at < session.passed().size(); ++at) {
    const bool failed = std::any_of(raced.failed.begin(), raced.failed.end(),
                                    [at](const auto& ended) { return ended.first == at; });
    if (!failed) sound.push_back(session.passed()[at]);
  }
  double best_us = kInfinite;
  for (const std::size_t i : sound) {
    best_us = std::min(best_us, session.runner().true_us(i, options.power_limited));
  }
  const auto regret = [&](std::size_t configuration) {
    return session.runner().true_us(configuration, options.power_limited) / best_us - 1;
  };

  SelectionTrial trial;
  trial.winner = session.passed()[raced.finalists[raced.decision.winner].survivor];
  trial.regret = regret(trial.winner);
  trial.verdict = raced.decision.verdict;
  trial.trust = audit.trust();
  if (trial.verdict == Verdict::unresolved) trial.trust = std::max(trial.trust, Trust::b);
  if (raced.decision.disturbed) trial.trust = Trust::c;
  trial.power_limited = raced.power_limited;
  trial.rounds = static_cast<int>(raced.rounds.sm_probe_us.size());
  trial.samples = session.runner().samples_taken();
  trial.seconds = session.seconds();

  Session plain(space, candidates, options.simulation);
  const std::size_t each =
      std::max<std::size_t>(static_cast<std::size_t>(trial.samples) / sound.size(), 1);
  KW_ASSIGN(auto chosen, plain.choose_plainly(sound, each));
  trial.regret_of_min = regret(chosen.of_min);
  trial.regret_of_median = regret(chosen.of_median);
  return trial;
}

}  // namespace kernwright
