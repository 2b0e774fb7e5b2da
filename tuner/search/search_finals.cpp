#include "tuner/search/search_finals.h"

#include <map>
#include <utility>

#include "support/try.h"

namespace kernwright {
namespace {

/// The candidates that are loaded race, and besides them those within this factor of the best, up
/// to this number.
constexpr double kRaceMargin = 1.2;
constexpr std::size_t kMostRaced = 96;
/// The share of the race's time in which candidates that are not loaded may be loaded.
constexpr double kLoadShare = 0.2;

/// So many candidates of each template that reads ahead race whatever they take alone, if they are
/// within this factor of the best.
constexpr int kMostForChains = 2;
constexpr double kChainMargin = 1.25;

constexpr std::string_view kInTheFinals = "in the finals: ";

/// Loads the survivor, and keeps the device busy, since many loads may follow. It stays unloaded if
/// it cannot be loaded any more.
Result<void> load(Runner& runner, const Candidate& candidate, Survivor& survivor, TrialBook& book) {
  KW_ASSIGN(auto prepared, runner.prepare(candidate, *survivor.compiled.kernel));
  if (prepared.step.outcome != Outcome::ok) {
    return book.fail(survivor.trial, prepared.step, kInTheFinals);
  }
  survivor.id = prepared.id;
  const Runner::Id probe = Runner::kSmProbe;
  KW_TRY(runner.sample({&probe, 1}));
  return {};
}

void mark_those_for_chains(std::span<const Candidate> candidates, Survivors& survivors) {
  std::map<const KernelTemplate*, int> marked;
  for (std::size_t i = 0; i < survivors.size(); ++i) {
    Survivor& survivor = survivors[i];
    if (survivor.score_us > kChainMargin * survivors[0].score_us) return;
    const Candidate& candidate = candidates[survivor.candidate];
    survivor.is_for_chains =
        reads_ahead(candidate.plan) && marked[candidate.kernel_template]++ < kMostForChains;
  }
}

/// Loads those that may race, and drops the others.
Result<void> load_racing(Runner& runner, std::span<const Candidate> candidates,
                         const RaceOptions& options, Survivors& survivors, TrialBook& book) {
  double load_seconds = 0;
  for (std::size_t i = 0; i < survivors.size(); ++i) {
    Survivor& survivor = survivors[i];
    if (survivor.id >= 0) continue;
    const bool near = survivor.score_us <= kRaceMargin * survivors[0].score_us && i < kMostRaced &&
                      load_seconds < kLoadShare * options.seconds;
    const bool always_in =
        i < Survivors::kLoaded || survivor.traits.is_known_answer() || survivor.is_for_chains;
    if (!near && !always_in) continue;
    const double before = options.clock_seconds();
    KW_TRY(load(runner, candidates[survivor.candidate], survivor, book));
    load_seconds += options.clock_seconds() - before;
  }
  survivors.keep_loaded();
  return {};
}

}  // namespace

Result<FinalsResult> run_finals(Runner& runner, std::span<const Candidate> candidates,
                                const RaceOptions& options, Survivors& survivors, TrialBook& book) {
  FinalsResult result;
  mark_those_for_chains(candidates, survivors);
  KW_TRY(load_racing(runner, candidates, options, survivors, book));
  if (survivors.empty()) return result;
  KW_ASSIGN(result.race, race(runner, survivors.all(), options));
  for (const auto& [survivor, step] : result.race.failed) {
    KW_TRY(book.fail(survivors[survivor].trial, step, kInTheFinals));
  }
  for (const RaceResult::Finalist& finalist : result.race.finalists) {
    const Survivor& survivor = survivors[finalist.survivor];
    KW_ASSIGN(double gap_us, runner.launch_gap_us(survivor.id));
    result.launch_gaps_us.push_back(gap_us);
    book.add_finals(survivor.trial, finalist.samples, finalist.check);
  }
  if (!result.race.finalists.empty()) {
    const RaceResult::Finalist& winner = result.race.finalists[result.race.decision.winner];
    result.launch_paths = runner.launch_paths(survivors[winner.survivor].id);
  }
  survivors.unload_all();
  return result;
}

}  // namespace kernwright
