#include "tuner/session/tuning_session.h"

#include <algorithm>
#include <utility>

#include "compile/render.h"
#include "support/steady_seconds.h"
#include "support/try.h"
#include "tuner/candidates/search_space.h"
#include "tuner/cost/cost_model.h"
#include "tuner/search/record_parts.h"
#include "tuner/search/trial_log.h"
#include "tuner/session/compile_ahead.h"
#include "tuner/strategies/first_choices.h"

namespace kernwright {
namespace {

/// Share of the budget that opening may use up.
constexpr double kOpeningShare = 0.25;

}  // namespace

Result<void> TuningSession::enumerate(std::size_t broken_habits) {
  if (list_ && broken_habits == 0) return {};
  KW_ASSIGN(list_, enumerate_candidates(in_.catalog, in_.problem, in_.profile, broken_habits));
  return {};
}

Result<void> TuningSession::compile_first_choices() {
  KW_TRY(enumerate(0));
  const SearchSpace space = make_search_space(*list_, {});
  const auto threads = static_cast<std::size_t>(in_.pool.threads());
  std::vector<std::size_t> choices{list_->default_index};
  // One more than are wanted: what is compiled as the default is serves for both.
  const int default_group = space.group_of[list_->default_index];
  for (const std::size_t choice : detail::first_choices(space, threads + 1)) {
    if (space.group_of[choice] != default_group && choices.size() < threads) {
      choices.push_back(choice);
    }
  }
  for (const std::size_t choice : choices) {
    first_choices_.push_back(
        in_.pool.submit(render(list_->candidates[choice], in_.catalog, in_.profile.sm_arch)));
  }
  return {};
}

Result<TuningResult> TuningSession::run(Runner& runner, TuningOptions options,
                                        EarlierTunings earlier) {
  if (!options.clock_seconds) options.clock_seconds = steady_seconds;
  const TuningBudget& budget = options.budget;
  const double started =
      options.clock_seconds() - std::min(budget.opening_seconds, kOpeningShare * budget.seconds);
  std::vector<std::string> notes;
  const auto note = [&notes](const Result<void>& kept) {
    if (!kept) notes.push_back(kept.error().message);
  };
  TrialLog log(options.trial_log);
  note(log.begin(in_.key, in_.environment));
  // An exhaustive search shows what each habit costs.
  KW_TRY(enumerate(options.strategy == "exhaustive" ? 1 : 0));
  const CandidateList& list = *list_;
  std::vector<Choice> warm_starts = earlier.warm_starts;
  if (earlier.incumbent) warm_starts.insert(warm_starts.begin(), *earlier.incumbent);
  const SearchSpace space = make_search_space(list, warm_starts);
  KW_ASSIGN(auto strategy, make_strategy(options.strategy, space, options.random_seed));
  CompileAhead ahead(list.candidates, in_.catalog, in_.profile.sm_arch, in_.pool);
  const SearchInput input{.candidates = list.candidates,
                          .space = space,
                          .profile = in_.profile,
                          .strategy = *strategy,
                          .queue = ahead,
                          .runner = runner,
                          .log = log,
                          .earlier = std::move(earlier),
                          .problem = in_.problem.text(),
                          .rejected = list.rejected,
                          .roofline_us = roofline_us(in_.problem, in_.profile),
                          .started = started};
  KW_ASSIGN(TuningResult result, run_search(input, options));
  complete(result.record, in_);
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
