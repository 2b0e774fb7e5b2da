#include "tuner/session/search_finals.h"

#include <algorithm>
#include <utility>

#include "support/try.h"
#include "tuner/session/evidence.h"

namespace kernwright {
namespace {

/// The candidates that are loaded race, and besides them those within this factor of the best, up
/// to this number.
constexpr double kRaceMargin = 1.2;
constexpr std::size_t kMostRaced = 96;
/// The share of the race's time in which candidates that are not loaded may be loaded.
constexpr double kLoadShare = 0.2;

class SearchFinals {
 public:
  SearchFinals(const FinalsInput& input, Survivors& survivors, std::vector<Trial>& trials)
      : in_(input), survivors_(survivors), trials_(trials) {}

  Result<FinalsResult> run();

 private:
  Traits traits(const Survivor& survivor) const;
  Result<std::vector<Contender>> contenders();
  Result<bool> load(Survivor& survivor);
  Result<void> keep(const RaceResult::Entry& finalist, const Standing& standing);

  const FinalsInput& in_;
  Survivors& survivors_;
  std::vector<Trial>& trials_;
  std::vector<std::size_t> entered_;  ///< the survivor of each contender, by rank
  FinalsResult result_;
};

Traits SearchFinals::traits(const Survivor& survivor) const {
  const Trial& trial = trials_[survivor.trial];
  const Candidate& candidate = in_.candidates[survivor.candidate];
  std::int64_t dynamic_smem = 0;
  for (const LaunchPlan& launch : candidate.plan.launches) {
    dynamic_smem = std::max(dynamic_smem, std::int64_t{launch.dynamic_smem});
  }
  return {.id = trial.choice.id(),
          .is_incumbent = in_.incumbent == survivor.candidate,
          .is_default = survivor.candidate == in_.default_index,
          .deterministic = trial.check.deterministic,
          .workspace_bytes = candidate.plan.workspace_bytes(),
          .warned = !survivor.compiled.kernel->warnings.empty(),
          .registers = trial.resources.registers,
          .smem_bytes = trial.resources.static_smem_bytes + dynamic_smem};
}

/// Loads the survivor, and gives the device work, since many loads may follow. False where it
/// cannot be loaded any more.
Result<bool> SearchFinals::load(Survivor& survivor) {
  if (survivor.id >= 0) return true;
  KW_ASSIGN(auto prepared,
            in_.runner.prepare(in_.candidates[survivor.candidate], *survivor.compiled.kernel));
  if (prepared.step.outcome == Outcome::ok) {
    survivor.id = prepared.id;
    const Runner::Id reference = Runner::kSmReference;
    auto sampled = in_.runner.sample({&reference, 1});
    if (!sampled) return sampled.error();
    return true;
  }
  KW_TRY(in_.fail(survivor.trial, prepared.step));
  return false;
}

/// Those that may race, loaded.
Result<std::vector<Contender>> SearchFinals::contenders() {
  std::vector<Contender> result;
  double load_seconds = 0;
  for (std::size_t i = 0; i < survivors_.size(); ++i) {
    Survivor& survivor = survivors_[i];
    const Traits own = traits(survivor);
    const bool near = survivor.score_us <= kRaceMargin * survivors_[0].score_us && i < kMostRaced &&
                      load_seconds < kLoadShare * in_.race.seconds;
    if (i >= Survivors::kLoaded && !near && !own.is_default && !own.is_incumbent) continue;
    const double before = in_.race.clock_seconds();
    KW_ASSIGN(auto loaded, load(survivor));
    load_seconds += in_.race.clock_seconds() - before;
    if (!loaded) continue;
    result.push_back({survivor.id, own, survivor.samples_us});
    entered_.push_back(i);
  }
  return result;
}

Result<void> SearchFinals::keep(const RaceResult::Entry& finalist, const Standing& standing) {
  Survivor& survivor = survivors_[entered_[finalist.contender]];
  Trial& trial = trials_[survivor.trial];
  merge(trial.check, finalist.check);
  trial.measurement = {};
  for (const Sample& sample : finalist.samples) {
    trial.measurement.samples_us.push_back(sample.us);
    trial.measurement.sm_mhz.push_back(sample.sm_mhz);
  }
  // Clocks are for all samples or for none.
  const auto& clocks = trial.measurement.sm_mhz;
  if (std::any_of(clocks.begin(), clocks.end(), [](double mhz) { return mhz <= 0; })) {
    trial.measurement.sm_mhz.clear();
  }
  KW_ASSIGN(auto gap, in_.runner.launch_gap_us(survivor.id));
  const Traits own = traits(survivor);
  RankedConfiguration ranked = ranked_configuration(trial, survivor.compiled.digest);
  ranked.smem_bytes = own.smem_bytes;
  ranked.workspace_bytes = own.workspace_bytes;
  ranked.launch_gap_us = gap;
  ranked.slowdown = standing.slowdown;
  ranked.is_default = own.is_default;
  ranked.is_incumbent = own.is_incumbent;
  ranked.tied = standing.equal();
  ranked.deterministic = own.deterministic;
  ranked.warned = own.warned;
  ranked.in_blocks = finalist.in_blocks;
  result_.finalists.push_back({survivor.trial, std::move(ranked), std::move(survivor.compiled)});
  return {};
}

Result<FinalsResult> SearchFinals::run() {
  KW_ASSIGN(auto racing, contenders());
  if (racing.empty()) return FinalsResult{};
  KW_ASSIGN(result_.race, race(in_.runner, racing, in_.race));
  for (const auto& [contender, step] : result_.race.failed) {
    KW_TRY(in_.fail(survivors_[entered_[contender]].trial, step));
  }
  for (std::size_t i = 0; i < result_.race.finalists.size(); ++i) {
    const auto kept = keep(result_.race.finalists[i], result_.race.decision.standings[i]);
    if (!kept) return kept.error();
  }
  if (!result_.race.finalists.empty()) {
    const RaceResult::Entry& winner = result_.race.finalists[result_.race.decision.winner];
    result_.launch_paths = in_.runner.launch_paths(survivors_[entered_[winner.contender]].id);
  }
  survivors_.unload_all();
  return std::move(result_);
}

}  // namespace

Result<FinalsResult> run_finals(const FinalsInput& input, Survivors& survivors,
                                std::vector<Trial>& trials) {
  return SearchFinals(input, survivors, trials).run();
}

}  // namespace kernwright
