#include "tuner/session/evidence.h"

#include <algorithm>
#include <map>
#include <utility>

#include "support/text.h"

namespace kernwright {

Trial make_trial(const Candidate& candidate, double predicted_us) {
  Trial trial;
  trial.choice = candidate.choice();
  trial.predicted_us = predicted_us;
  return trial;
}

RankedConfiguration ranked_configuration(const Trial& trial, std::string artifact) {
  RankedConfiguration ranked;
  ranked.choice = trial.choice;
  ranked.artifact = std::move(artifact);
  ranked.measurement = trial.measurement;
  ranked.predicted_us = trial.predicted_us;
  ranked.resources = trial.resources;
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

bool gap_dominated(const RankedConfiguration& ranked) {
  constexpr double kShare = 0.2;
  return ranked.launch_gap_us > kShare * ranked.measurement.median_us();
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
