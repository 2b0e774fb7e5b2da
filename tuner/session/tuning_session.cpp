#include "tuner/session/tuning_session.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "compile/render.h"
#include "support/try.h"
#include "tuner/candidates/search_space.h"
#include "tuner/cost/cost_model.h"
#include "tuner/search/record_parts.h"
#include "tuner/search/trial_log.h"
#include "tuner/session/compile_ahead.h"
#include "tuner/strategies/prior.h"

namespace kernwright {
namespace {

/// Of the budget that opening may use up.
constexpr double kOpeningShare = 0.25;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

TuningSession::TuningSession(const Catalog& catalog, const Operation& operation, Problem normalized,
                             const DeviceProfile& profile, RecordKey key,
                             RecordEnvironment environment, CompilePool& pool,
                             const ArtifactStore& artifacts)
    : catalog_(catalog),
      operation_(operation),
      problem_(std::move(normalized)),
      profile_(profile),
      key_(std::move(key)),
      environment_(std::move(environment)),
      pool_(pool),
      artifacts_(artifacts) {}

Result<void> TuningSession::enumerate() {
  if (list_) return {};
  KW_ASSIGN(list_, enumerate_candidates(catalog_, operation_, problem_, profile_));
  return {};
}

Result<void> TuningSession::compile_first_choices() {
  KW_TRY(enumerate());
  const SearchSpace space = make_search_space(*list_, profile_, {});
  const auto threads = static_cast<std::size_t>(pool_.threads());
  std::vector<std::size_t> choices{list_->default_index};
  // One more than are wanted: what is compiled as the default is serves for both.
  const int default_group = space.group_of[list_->default_index];
  for (const std::size_t choice : detail::Prior(space).favourites(threads + 1)) {
    if (space.group_of[choice] != default_group && choices.size() < threads) {
      choices.push_back(choice);
    }
  }
  for (const std::size_t choice : choices) {
    // Nobody waits: the search asks again.
    static_cast<void>(pool_.submit(render(list_->candidates[choice], catalog_, profile_.sm_arch)));
  }
  return {};
}

Result<TuningResult> TuningSession::run(Runner& runner, TuningOptions options) {
  if (!options.clock_seconds) options.clock_seconds = steady_seconds;
  const TuningBudget& budget = options.budget;
  const double started =
      options.clock_seconds() - std::min(budget.opening_seconds, kOpeningShare * budget.seconds);
  std::vector<std::string> notes;
  const auto note = [&notes](const Result<void>& kept) {
    if (!kept) notes.push_back(kept.error().message);
  };
  TrialLog log(options.trial_log);
  note(log.begin(key_, environment_));
  KW_TRY(enumerate());
  const CandidateList& list = *list_;
  std::vector<Choice> warm_starts = options.warm_starts;
  if (options.incumbent) warm_starts.insert(warm_starts.begin(), *options.incumbent);
  const SearchSpace space = make_search_space(list, profile_, warm_starts);
  KW_ASSIGN(auto strategy, make_strategy(options.strategy, space, options.random_seed));
  std::string compiler = environment_.compiler;
  if (compiler.empty()) {
    KW_ASSIGN(compiler, pool_.compiler().identity());
  }
  CompileAhead ahead(list.candidates, catalog_, profile_.sm_arch, std::move(compiler), pool_,
                     artifacts_);
  const SearchInput input{.candidates = list.candidates,
                          .space = space,
                          .profile = profile_,
                          .strategy = *strategy,
                          .queue = ahead,
                          .runner = runner,
                          .log = log,
                          .key = key_,
                          .environment = environment_,
                          .rejected = list.rejected,
                          .roofline_us = roofline_us(operation_, problem_, profile_),
                          .started = started};
  KW_ASSIGN(auto found, run_search(input, options));
  for (const CompiledCandidate& finalist : found.finalists) {
    if (!artifacts_.get(finalist.digest)) {
      note(artifacts_.put(finalist.digest, *finalist.kernel));
    }
  }
  TuningResult result = std::move(found.result);
  notes.insert(notes.end(), list.notes.begin(), list.notes.end());
  for (std::string& message : result.notes) {
    if (std::find(notes.begin(), notes.end(), message) == notes.end()) {
      notes.push_back(std::move(message));
    }
  }
  result.notes = std::move(notes);
  return result;
}

}  // namespace kernwright
