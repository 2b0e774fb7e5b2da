#include "tuner/search/record_parts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "cache/records/record_view.h"
#include "support/text.h"
#include "tuner/strategies/regret.h"

namespace kernwright {
namespace {

double in_turn_us(const RankedConfiguration& ranked, const FinalRounds& rounds) {
  return final_times(ranked, rounds).in_turn.median_us();
}

RankedConfiguration ranked_finalist(const SearchEvidence& evidence, std::size_t i) {
  const RaceResult::Finalist& finalist = evidence.finals.race.finalists[i];
  const Standing& standing = evidence.finals.race.decision.standings[i];
  const Survivor& survivor = evidence.survivors[finalist.survivor];
  const Trial& trial = evidence.book.trials()[survivor.trial];
  RankedConfiguration ranked = ranked_configuration(trial, survivor.compiled.digest);
  ranked.traits = survivor.traits;
  ranked.traits.deterministic = trial.check.deterministic;
  ranked.launch_gap_us = evidence.finals.launch_gaps_us[i];
  ranked.slowdown = standing.slowdown;
  ranked.tied = standing.equal();
  ranked.in_blocks = finalist.in_blocks;
  return ranked;
}

/// The winner with its proof, the default, and the others, those that ran in blocks before the
/// rest.
void add_finalists(const SearchEvidence& evidence, TuningRecord& record) {
  const RaceResult& race = evidence.finals.race;
  for (std::size_t i = 0; i < race.finalists.size(); ++i) {
    RankedConfiguration ranked = ranked_finalist(evidence, i);
    if (ranked.traits.is_default) record.baseline = ranked;
    if (i == race.decision.winner) {
      record.check =
          evidence.book.trials()[evidence.survivors[race.finalists[i].survivor].trial].check;
      record.winner = std::move(ranked);
    } else {
      record.runners_up.push_back(std::move(ranked));
    }
  }
  const auto rank = [&](const RankedConfiguration& ranked) {
    return std::pair(!ranked.in_blocks, in_turn_us(ranked, race.rounds));
  };
  std::sort(record.runners_up.begin(), record.runners_up.end(),
            [&](const RankedConfiguration& a, const RankedConfiguration& b) {
              return rank(a) < rank(b);
            });
}

}  // namespace

RankedConfiguration ranked_configuration(const Trial& trial, std::string artifact) {
  RankedConfiguration ranked;
  ranked.choice = trial.choice;
  ranked.artifact = std::move(artifact);
  ranked.measurement = trial.measurement;
  ranked.predicted_us = trial.predicted_us;
  ranked.traits.resources = trial.resources;
  return ranked;
}

void merge(CheckReport& proof, const CheckReport& later) {
  proof.max_error = std::max(proof.max_error, later.max_error);
  proof.elements = std::max(proof.elements, later.elements);
  if (later.mismatches > proof.mismatches) {
    proof.mismatches = later.mismatches;
    proof.first_mismatch = later.first_mismatch;
  }
  proof.exact = proof.exact || later.exact;
  proof.guarded = proof.guarded || later.guarded;
  proof.unmapped = proof.unmapped || later.unmapped;
  proof.repeats = std::max(proof.repeats, later.repeats);
  proof.deterministic = proof.deterministic && later.deterministic;
  proof.after_timing = proof.after_timing || later.after_timing;
}

TuningRecord search_record(const SearchEvidence& evidence) {
  const SearchInput& input = evidence.input;
  const RaceResult& race = evidence.finals.race;
  TuningRecord record;
  record.grade = RecordGrade::measured;
  add_finalists(evidence, record);
  record.rounds = race.rounds;
  if (evidence.finals.launch_paths) record.launch_paths = *evidence.finals.launch_paths;

  const double best_us = in_turn_us(record.winner, race.rounds);
  record.search = {.strategy = evidence.options.strategy,
                   .random_seed = evidence.options.random_seed,
                   .rejected = input.rejected + evidence.book.skipped(),
                   .compiled = input.queue.compiled(),
                   .failed = evidence.book.failed(),
                   .raced = race.raced,
                   .warm_starts = static_cast<int>(input.space.warm_starts.size()),
                   .stop_reason = std::string(evidence.stop_reason),
                   .regret_estimate = regret_estimate({.best_us = best_us,
                                                       .roofline_us = input.roofline_us,
                                                       .predicted_us = input.space.predicted_us,
                                                       .results = evidence.book.results()})};
  record.candidates = static_cast<int>(input.candidates.size());
  record.measured = evidence.book.measured();
  record.audit = evidence.audit;
  record.verdict = hardly_looked(record) ? Verdict::unresolved : race.decision.verdict;
  record.trust = evidence.audit.trust();
  if (record.verdict == Verdict::unresolved) record.trust = std::max(record.trust, Trust::b);
  if (race.decision.disturbed) record.trust = Trust::c;
  record.settle_ms = 1000 * evidence.settle_seconds;
  record.wall_seconds = evidence.wall_seconds;
  record.idle_seconds = evidence.device.idle_seconds();
  record.longest_idle_ms = 1000 * evidence.device.longest_idle_seconds;
  return record;
}

Error none_passed(std::string_view problem, std::span<const Trial> trials) {
  std::map<Outcome, int> counts;
  for (const Trial& trial : trials) ++counts[trial.outcome];
  const auto commonest =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (commonest == counts.end()) {
    return {ErrorCode::timed_out, concat("no candidate for \"", problem, "\" was tried in time")};
  }
  const auto example = std::find_if(trials.begin(), trials.end(), [&](const Trial& trial) {
    return trial.outcome == commonest->first;
  });
  const bool compile = commonest->first == Outcome::compile_failed ||
                       commonest->first == Outcome::link_failed ||
                       commonest->first == Outcome::spilled;
  return {compile ? ErrorCode::compile : ErrorCode::device,
          concat("none of ", trials.size(), " candidates for \"", problem,
                 "\" passed: ", commonest->second, " ended as ", to_string(commonest->first),
                 ", the first is ", example->choice.id(), ": ", example->detail)};
}

}  // namespace kernwright
