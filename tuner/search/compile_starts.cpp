#include "tuner/search/compile_starts.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "support/text.h"
#include "tuner/search/compiled_trial.h"

namespace kernwright {

CompileStarts::CompileStarts(const SearchInput& input, const TuningOptions& options,
                             TrialBook& book)
    : input_(input),
      book_(book),
      most_(static_cast<std::size_t>(std::max(options.budget.trials, 1))) {
  for (const KnownFailure& failure : input.earlier.failures) {
    known_failures_.emplace(failure.id, failure.outcome);
  }
}

bool CompileStarts::start(std::size_t candidate) {
  if (!started_.insert(candidate).second) return false;
  if (!known_failures_.empty()) {
    const Candidate& one = input_.candidates[candidate];
    if (const auto known = known_failures_.find(one.id()); known != known_failures_.end()) {
      Trial trial = make_trial(one, input_.space.predicted_us[candidate]);
      trial.detail = concat("failed before: ", to_string(known->second));
      book_.skip(candidate, std::move(trial));
      return false;
    }
  }
  input_.queue.start(candidate);
  return true;
}

void CompileStarts::start_more() {
  while (!exhausted_ && may_start() && input_.queue.wants_more()) {
    const std::vector<std::size_t> proposal = input_.strategy.propose(1);
    exhausted_ = proposal.empty();
    for (const std::size_t candidate : proposal) start(candidate);
  }
}

bool CompileStarts::start_compiled() {
  if (!may_start()) return false;
  const std::optional<std::size_t> compiled = input_.strategy.propose_compiled();
  if (compiled) start(*compiled);
  return compiled.has_value();
}

}  // namespace kernwright
