#include "tuner/search/search.h"

#include <algorithm>
#include <utility>

#include "cache/records/record_view.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/candidates/candidate_list.h"
#include "tuner/search/candidate_visits.h"
#include "tuner/search/compile_starts.h"
#include "tuner/search/record_parts.h"
#include "tuner/search/screening.h"
#include "tuner/search/search_budget.h"
#include "tuner/search/search_clock.h"
#include "tuner/search/search_finals.h"
#include "tuner/search/survivors.h"
#include "tuner/search/trial_book.h"
#include "tuner/strategies/stop_rule.h"

namespace kernwright {
namespace {

/// However little time there is, another candidate is measured beside the default.
constexpr int kFewestMeasured = 2;

std::optional<std::size_t> find_incumbent(const SearchInput& input) {
  if (!input.earlier.incumbent) return std::nullopt;
  for (std::size_t i = 0; i < input.candidates.size(); ++i) {
    if (input.candidates[i].choice() == *input.earlier.incumbent) return i;
  }
  return std::nullopt;
}

/// The order of a search: audit, screening, audit, finals, audit.
class Search {
 public:
  Search(const SearchInput& input, const TuningOptions& options)
      : input_(input),
        options_(options),
        clock_{options.clock_seconds, input.started},
        incumbent_(find_incumbent(input)),
        predicted_(predicted_choice(input.space.predicted_us, input.space.default_index)),
        budget_(options.budget.seconds),
        stop_rule_(options.budget.seconds, input.roofline_us),
        survivors_(input.runner),
        book_(input.strategy, input.runner, clock_, input.log, input.earlier.failed),
        starts_(input, options, book_),
        screening_(input.runner, clock_.seconds, budget_.settle_seconds()),
        visits_(input, options.random_seed, clock_, predicted_, incumbent_, screening_, book_,
                survivors_, shares_) {}

  Result<TuningResult> run();

 private:
  Result<void> audit();
  Result<void> screen();
  Result<void> visit_default();
  Result<void> visit(CompileQueue::Ready ready);
  Result<void> fill_idle_time();
  std::string_view stop_reason();
  Result<FinalsResult> finals();
  TuningResult conclude(FinalsResult finals);
  void report_progress();

  const SearchInput& input_;
  const TuningOptions& options_;
  SearchClock clock_;
  std::optional<std::size_t> incumbent_;
  std::size_t predicted_;
  /// The predicted choice is compiled and was not visited. The search does not end before: it is
  /// what an untuned answer would be, and a tuned one must not be worse.
  bool awaits_predicted_ = false;
  SearchBudget budget_;
  StopRule stop_rule_;
  std::size_t told_ = 0;  ///< results that the stop rule knows
  std::string stop_reason_;
  TimeShares shares_;
  Audit audit_;
  Survivors survivors_;
  TrialBook book_;
  CompileStarts starts_;
  Screening screening_;
  CandidateVisits visits_;
};

Result<TuningResult> Search::run() {
  report_progress();
  KW_TRY(audit());
  shares_.setup_seconds = clock_.elapsed();
  static_cast<void>(input_.runner.take_use());  // of the set-up
  KW_TRY(screen());
  if (survivors_.empty()) return none_passed(input_.problem, book_.trials());
  if (options_.screened) options_.screened();
  KW_ASSIGN(FinalsResult found, clock_.timed(shares_.finals_seconds, [this] { return finals(); }));
  return conclude(std::move(found));
}

Result<void> Search::audit() {
  KW_ASSIGN(const Audit found, input_.runner.audit());
  audit_.merge(found);
  return {};
}

void Search::report_progress() {
  if (!options_.progress) return;
  TuningProgress progress{.candidates = static_cast<int>(input_.candidates.size()),
                          .compiled = input_.queue.compiled(),
                          .measured = book_.measured(),
                          .failed = book_.failed(),
                          .seconds = clock_.elapsed()};
  if (!survivors_.empty()) {
    progress.best_us = survivors_[0].score_us;
    progress.best = survivors_[0].choice.id();
  }
  options_.progress(progress);
}

/// Compiles and visits candidates until there is a reason to stop.
Result<void> Search::screen() {
  const bool has_default = starts_.start(input_.space.default_index);
  if (incumbent_) starts_.start(*incumbent_);
  awaits_predicted_ = starts_.may_start() && starts_.start(predicted_);
  starts_.start_more();
  KW_ASSIGN(shares_.settle_seconds, screening_.settle());
  if (has_default) KW_TRY(visit_default());
  while (true) {
    starts_.start_more();
    stop_reason_ = stop_reason();
    if (!stop_reason_.empty()) return {};
    if (auto ready = input_.queue.take()) {
      KW_TRY(visit(*std::move(ready)));
    } else if (!starts_.start_compiled()) {
      KW_TRY(fill_idle_time());
    }
  }
}

Result<void> Search::visit_default() {
  const std::size_t candidate = input_.space.default_index;
  while (!input_.queue.ended(candidate)) KW_TRY(fill_idle_time());
  return visit(input_.queue.wait_for(candidate));
}

Result<void> Search::visit(CompileQueue::Ready ready) {
  if (ready.candidate == predicted_) awaits_predicted_ = false;
  KW_TRY(visits_.visit(std::move(ready)));
  report_progress();
  return {};
}

Result<void> Search::fill_idle_time() {
  report_progress();  // compiles end meanwhile
  return visits_.fill_idle_time();
}

/// Why the search is to end; empty: it goes on.
std::string_view Search::stop_reason() {
  const int ended = book_.measured() + book_.failed();
  if (awaits_predicted_ || (ended < kFewestMeasured && !input_.queue.empty())) return {};
  const bool few = hardly_looked(ended, static_cast<int>(input_.candidates.size()));
  if (budget_.screened(clock_.elapsed(), few)) return "budget";
  if (input_.queue.empty()) return starts_.exhausted() ? "exhausted" : "trials";
  if (input_.strategy.wants_all()) return {};
  const auto& results = book_.results();
  for (; told_ < results.size(); ++told_) stop_rule_.add(results[told_].us);
  return stop_rule_.reason();
}

Result<FinalsResult> Search::finals() {
  report_progress();
  KW_TRY(audit());
  RaceOptions race;
  race.random_seed = options_.random_seed;
  race.finalists = options_.finalists;
  race.max_rounds = options_.final_rounds;
  budget_.limit(race, input_.started, clock_.elapsed());
  race.settle_seconds = shares_.settle_seconds;
  race.clock_seconds = clock_.seconds;
  KW_ASSIGN(FinalsResult found,
            run_finals(input_.runner, input_.candidates, race, survivors_, book_));
  if (found.race.finalists.empty()) return none_passed(input_.problem, book_.trials());
  if (const Result<LaunchTimes>& paths = found.launch_paths; !paths) {
    if (input_.runner.lost()) return paths.error();
    book_.note(concat("the launch paths could not be measured: ", paths.error().message));
  }
  KW_TRY(audit());
  audit_.merge(screening_.audit());
  audit_.merge(found.race.audit);
  return found;
}

TuningResult Search::conclude(FinalsResult finals) {
  shares_.wall_seconds = clock_.elapsed();
  shares_.device = input_.runner.take_use();
  shares_.compile_seconds = input_.queue.compile_seconds();
  shares_.compile_threads = input_.queue.threads();
  TuningResult found;
  found.record = search_record({.input = input_,
                                .options = options_,
                                .book = book_,
                                .survivors = survivors_.all(),
                                .finals = finals,
                                .audit = audit_,
                                .stop_reason = stop_reason_,
                                .settle_seconds = shares_.settle_seconds,
                                .wall_seconds = shares_.wall_seconds,
                                .device = shares_.device});
  const RaceResult::Finalist& winner = finals.race.finalists[finals.race.decision.winner];
  found.kernel = survivors_[winner.survivor].compiled.kernel;
  if (gap_dominated(found.record.winner)) {
    book_.note("the time between kernels is more than a fifth of the winner's");
  }
  found.shares = shares_;
  found.rejected = input_.rejected;
  found.trials = book_.trials();
  found.notes = book_.notes();
  return found;
}

}  // namespace

Result<TuningResult> run_search(const SearchInput& input, const TuningOptions& options) {
  return Search(input, options).run();
}

}  // namespace kernwright
