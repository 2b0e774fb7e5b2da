#include "service/tune/tuning_history.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "support/utc.h"
#include "tuner/candidates/warm_starts.h"

namespace kernwright {

EarlierTunings TuningHistory::of(const BoundProblem& problem, const Answers& known) const {
  EarlierTunings earlier;
  for (const GradedRecord& found : known.records) {
    // A record of level C claims nothing that a new search would need to refute.
    if (found.head.grade != RecordGrade::measured || found.head.trust == Trust::c) continue;
    earlier.incumbent = found.head.winner.choice;
    if (found.match == Match::exact) break;
    if (const Lookup<TuningRecord> record = read_record(found.file)) {
      for (const RankedConfiguration& ranked : record.value->runners_up) {
        earlier.warm_starts.push_back(ranked.choice);
      }
    }
    break;
  }
  std::vector<RecordRun> others;
  for (const std::filesystem::path& root : cache_.roots()) {
    std::vector<RecordRun> runs = RecordStore(root).heads(problem.operation().name);
    std::move(runs.begin(), runs.end(), std::back_inserter(others));
  }
  for (Choice& choice : find_warm_starts(problem, key_, others)) {
    earlier.warm_starts.push_back(std::move(choice));
  }
  for (const Failure& failure :
       FailureStore(cache_.root()).active(key_.problem, scope({}), template_digest_)) {
    earlier.failures.push_back({failure.choice.id(), failure.outcome});
  }
  for (const auto& [id, ban] : known.decisions.bans()) {
    earlier.failures.push_back({id, Outcome::rejected});
  }
  return earlier;
}

Result<void> TuningHistory::keep(const Trial& failed) const {
  if (!lasting_severity(failed.outcome)) return {};
  return FailureStore(cache_.root())
      .put({.problem = key_.problem,
            .choice = failed.choice,
            .scope = scope(template_digest_(failed.choice.kernel_template)),
            .outcome = failed.outcome,
            .detail = failed.detail,
            .time = utc_now()});
}

FailureScope TuningHistory::scope(std::string template_digest) const {
  return {.sku = key_.sku,
          .target = key_.target,
          .driver = now_.driver,
          .compiler = now_.compiler,
          .template_digest = std::move(template_digest)};
}

}  // namespace kernwright
