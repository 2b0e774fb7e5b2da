#include "tuner/session/search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "support/random.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/finals/decision.h"
#include "tuner/session/code_identity.h"
#include "tuner/session/compile_ahead.h"
#include "tuner/session/evidence.h"
#include "tuner/session/screening.h"
#include "tuner/session/search_budget.h"
#include "tuner/session/search_finals.h"
#include "tuner/session/survivors.h"
#include "tuner/strategies/regret.h"
#include "tuner/strategies/stop_rule.h"

namespace kernwright {
namespace {

/// The first sample of a candidate this many times slower than the best ends its visit.
constexpr double kHopeless = 2;
/// A candidate that became this much faster than it was is checked again.
constexpr double kSuspicious = 0.9;
constexpr std::size_t kToppedUp = 8;    ///< the best so far, which fill idle time
constexpr std::size_t kTopUpOrder = 3;  ///< candidates per call, so that no compile waits for long
/// Spilling code is rarely the best: not where so many without are faster than the model expects
/// of it.
constexpr std::ptrdiff_t kSpillFree = 64;
constexpr double kSpillPenaltyBytes = 64;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Search {
 public:
  Search(const SearchInput& input, const TuningOptions& options)
      : in_(input),
        o_(options),
        clock_(options.clock_seconds ? options.clock_seconds : steady_seconds),
        budget_(options.budget.seconds),
        screening_(input.runner, clock_, budget_.settle_seconds()),
        stop_rule_(options.budget.seconds, input.roofline_us),
        passed_(input.runner) {}

  Result<SearchResult> run();

 private:
  /// What is known of code that was measured.
  struct Measured {
    std::size_t trial = 0;
    std::vector<double> samples_us;
  };

  double elapsed() const { return clock_() - in_.started; }
  int candidates() const { return static_cast<int>(in_.candidates.size()); }
  std::string_view stop_reason();

  void find_incumbent();
  std::optional<Outcome> known_failure(std::size_t candidate) const;
  bool start(std::size_t candidate);
  void start_more();
  Result<void> screen();
  Result<void> measure(CompileQueue::Ready ready);
  Result<void> visit(Trial& trial, Survivor& passed);
  bool spills_too_much(const Trial& trial) const;
  Result<void> finish(std::size_t candidate, Trial trial, std::optional<Survivor> passed,
                      std::span<const double> samples_us);
  Result<void> fill_idle_time();
  Result<void> top_up(Survivor& passed, const Runner::Sampled& sampled);
  Result<void> fail(std::size_t trial, const Runner::Step& step, std::string_view where);
  Result<void> still_there(const Trial& trial) const;
  Result<void> audit();

  Result<void> finals();
  SearchResult conclude();

  /// What fails here costs the log an entry, never the search its result.
  void note(const Result<void>& kept);
  void report_progress();
  /// Adds the time that `work` takes to `share`.
  template <typename Work>
  auto timed(double TimeShares::* share, Work work) {
    const double before = clock_();
    auto result = work();
    shares_.*share += clock_() - before;
    return result;
  }

  const SearchInput& in_;
  const TuningOptions& o_;
  std::function<double()> clock_;
  SearchBudget budget_;
  Screening screening_;
  StopRule stop_rule_;
  std::optional<std::size_t> incumbent_;
  std::map<std::string, Outcome, std::less<>> failures_;
  std::set<std::size_t> started_;
  int skipped_ = 0;  ///< known failures
  bool exhausted_ = false;
  std::map<Digest, Measured> code_;
  std::vector<Trial> trials_;
  std::vector<SearchOutlook::Result> results_;  ///< of candidates that were not skipped
  Survivors passed_;
  int measured_ = 0;
  int failed_ = 0;
  std::uint64_t drawn_ = 0;
  std::string stop_reason_;
  std::size_t asked_at_ = 0;  ///< the number of trials when the stop rule was asked last
  Audit audit_;
  TimeShares shares_;
  TuningProgress progress_;
  std::vector<std::string> notes_;
  FinalsResult finals_;
};

void Search::note(const Result<void>& kept) {
  if (kept) return;
  const std::string& message = kept.error().message;
  if (std::find(notes_.begin(), notes_.end(), message) == notes_.end()) notes_.push_back(message);
}

Result<void> Search::audit() {
  KW_ASSIGN(auto found, in_.runner.audit());
  audit_.merge(found);
  return {};
}

Result<void> Search::still_there(const Trial& trial) const {
  if (!in_.runner.lost()) return {};
  return Error{ErrorCode::device, concat("the device was lost to ", trial.choice.id(), " (",
                                         to_string(trial.outcome), "): ", trial.detail)};
}

void Search::report_progress() {
  progress_.candidates = candidates();
  progress_.compiled = in_.queue.compiled();
  progress_.measured = measured_;
  progress_.failed = failed_;
  progress_.seconds = elapsed();
  if (!passed_.empty()) {
    progress_.best_us = passed_[0].score_us;
    progress_.best = trials_[passed_[0].trial].choice.id();
  }
  if (o_.progress) o_.progress(progress_);
}

Result<SearchResult> Search::run() {
  for (const KnownFailure& failure : o_.failures) failures_.emplace(failure.id, failure.outcome);
  find_incumbent();
  report_progress();
  KW_TRY(audit());
  shares_.setup_seconds = elapsed();
  static_cast<void>(in_.runner.take_use());  // of the set-up
  KW_TRY(screen());
  if (passed_.empty()) return none_passed(in_.problem, trials_);
  KW_TRY(timed(&TimeShares::finals_seconds, [&] { return finals(); }));
  return conclude();
}

void Search::find_incumbent() {
  if (!o_.incumbent) return;
  for (std::size_t i = 0; i < in_.candidates.size(); ++i) {
    if (in_.candidates[i].choice() == o_.incumbent->choice) incumbent_ = i;
  }
}

std::optional<Outcome> Search::known_failure(std::size_t candidate) const {
  if (failures_.empty()) return std::nullopt;
  const auto found = failures_.find(in_.candidates[candidate].id());
  if (found == failures_.end()) return std::nullopt;
  return found->second;
}

/// False where it was started before, or is known to fail.
bool Search::start(std::size_t candidate) {
  if (!started_.insert(candidate).second) return false;
  if (const auto outcome = known_failure(candidate)) {
    Trial trial = make_trial(in_.candidates[candidate], in_.space.predicted_us[candidate]);
    trial.detail = concat("failed before: ", to_string(*outcome));
    ++skipped_;
    in_.strategy.report(candidate, trial);
    note(in_.log.append(trial));
    trials_.push_back(std::move(trial));
    return false;
  }
  in_.queue.start(candidate);
  return true;
}

void Search::start_more() {
  const auto allowed = static_cast<std::size_t>(std::max(o_.budget.trials, 1));
  while (!exhausted_ && started_.size() < allowed && in_.queue.wants_more()) {
    const std::vector<std::size_t> proposal = in_.strategy.propose(1);
    exhausted_ = proposal.empty();
    for (const std::size_t candidate : proposal) start(candidate);
  }
}

/// Why the search is to end; empty: it goes on.
std::string_view Search::stop_reason() {
  if (budget_.screened(elapsed(), hardly_looked(measured_ + failed_, candidates()))) {
    return "budget";
  }
  if (in_.queue.empty()) return exhausted_ ? "exhausted" : "trials";
  if (in_.strategy.wants_all()) return {};
  // Asking a model takes milliseconds.
  if (std::exchange(asked_at_, trials_.size()) == trials_.size()) return {};
  return stop_rule_.reason(in_.strategy.optimistic_us());
}

Result<void> Search::screen() {
  const std::size_t standard = in_.space.default_index;
  const bool has_default = start(standard);
  if (incumbent_) start(*incumbent_);
  start_more();
  KW_ASSIGN(shares_.settle_seconds, screening_.settle());
  if (has_default) {
    while (!in_.queue.ended(standard)) {
      if (auto filled = fill_idle_time(); !filled) return filled;
    }
    if (auto done = measure(in_.queue.wait_for(standard)); !done) return done;
  }
  while (true) {
    start_more();
    stop_reason_ = stop_reason();
    if (!stop_reason_.empty()) return {};
    if (auto ready = in_.queue.take()) {
      KW_TRY(measure(*std::move(ready)));
      continue;
    }
    if (started_.size() < static_cast<std::size_t>(std::max(o_.budget.trials, 1))) {
      if (const auto compiled = in_.strategy.propose_compiled()) {
        start(*compiled);
        continue;
      }
    }
    if (auto filled = fill_idle_time(); !filled) return filled;
  }
}

bool Search::spills_too_much(const Trial& trial) const {
  const int spilled = trial.resources.spill_bytes();
  if (spilled == 0) return false;
  const double expected_us = trial.predicted_us * (1 + spilled / kSpillPenaltyBytes);
  return std::count_if(passed_.begin(), passed_.end(), [&](const Survivor& passed) {
           return passed.score_us < expected_us &&
                  trials_[passed.trial].resources.spill_bytes() == 0;
         }) >= kSpillFree;
}

Result<void> Search::measure(CompileQueue::Ready ready) {
  const std::size_t index = ready.candidate;
  const Candidate& candidate = in_.candidates[index];
  if (!ready.kernel && ready.kernel.error().code == ErrorCode::unavailable) {
    return ready.kernel.error();
  }
  Trial trial = make_trial(candidate, in_.space.predicted_us[index]);
  CompileVerdict verdict = judge(candidate, ready.kernel, in_.profile);
  trial.outcome = verdict.outcome;
  trial.detail = std::move(verdict.detail);
  if (!ready.kernel) return finish(index, std::move(trial), std::nullopt, {});
  const CompiledKernel& kernel = *ready.kernel.value();
  trial.resources = kernel.resources();
  trial.compile_seconds = kernel.seconds;
  if (trial.outcome == Outcome::ok && spills_too_much(trial)) {
    trial.outcome = Outcome::spilled;
    trial.detail = concat("spills ", trial.resources.spill_bytes(), " bytes; ", kSpillFree,
                          " candidates that do not are faster than it may be");
  }
  if (trial.outcome != Outcome::ok) return finish(index, std::move(trial), std::nullopt, {});

  const Digest identity = code_identity(candidate, kernel);
  if (const auto known = code_.find(identity); known != code_.end() && !kernel.bits.empty()) {
    const Trial& same = trials_[known->second.trial];
    trial.outcome = same.outcome;
    trial.detail = concat("the same code as ", same.choice.id());
    trial.check = same.check;
    trial.measurement = same.measurement;
    return finish(index, std::move(trial), std::nullopt, known->second.samples_us);
  }
  Survivor passed;
  passed.candidate = index;
  passed.trial = trials_.size();
  passed.compiled = {std::move(ready.digest), std::move(ready.kernel).value()};
  auto done = timed(&TimeShares::measure_seconds, [&] { return visit(trial, passed); });
  if (!done) return done;
  code_[identity] = {trials_.size(), passed.samples_us};
  std::vector<double> samples = passed.samples_us;
  const bool ok = trial.outcome == Outcome::ok;
  return finish(index, std::move(trial), ok ? std::optional(std::move(passed)) : std::nullopt,
                samples);
}

Result<void> Search::visit(Trial& trial, Survivor& passed) {
  const double hopeless_us =
      passed_.empty() ? std::numeric_limits<double>::infinity() : kHopeless * passed_[0].score_us;
  KW_ASSIGN(Screening::Visit visit, screening_.visit(in_.candidates[passed.candidate],
                                                     *passed.compiled.kernel, hopeless_us));
  trial.check = visit.check;
  if (visit.step.outcome != Outcome::ok) {
    trial.outcome = visit.step.outcome;
    trial.detail = visit.step.detail;
    if (visit.id >= 0) in_.runner.drop(visit.id);
    return {};
  }
  passed.id = visit.id;
  for (const double us : visit.samples_us) passed.samples_us.push_back(us * std::exp(-visit.drift));
  trial.measurement.samples_us = std::move(visit.samples_us);
  return {};
}

/// The end of a trial: logged, reported, kept. `samples_us` is what the strategy learns from.
Result<void> Search::finish(std::size_t candidate, Trial trial, std::optional<Survivor> passed,
                            std::span<const double> samples_us) {
  note(in_.log.append(trial));
  const bool ok = trial.outcome == Outcome::ok;
  ++(ok ? measured_ : failed_);
  if (!ok && o_.failed) o_.failed(trial);
  KW_TRY(still_there(trial));
  Trial corrected = trial;
  if (ok) corrected.measurement.samples_us.assign(samples_us.begin(), samples_us.end());
  in_.strategy.report(candidate, corrected);
  const std::optional<double> us =
      ok ? std::optional(corrected.measurement.median_us()) : std::nullopt;
  stop_rule_.add(us);
  results_.push_back({candidate, us});
  trials_.push_back(std::move(trial));
  if (passed) passed_.insert(*std::move(passed));
  report_progress();
  return {};
}

Result<void> Search::fail(std::size_t index, const Runner::Step& step, std::string_view where) {
  Trial& trial = trials_[index];
  trial.outcome = step.outcome;
  trial.detail = concat(where, step.detail);
  --measured_;
  ++failed_;
  note(in_.log.append(trial));
  if (o_.failed) o_.failed(trial);
  return still_there(trial);
}

/// A few more samples of the best so far, and of a reference: free information, and the device
/// stays as warm as it is.
Result<void> Search::fill_idle_time() {
  report_progress();  // compiles end meanwhile
  return timed(&TimeShares::filler_seconds, [this]() -> Result<void> {
    std::vector<std::size_t> chosen;
    const std::size_t best = std::min(kToppedUp, passed_.size());
    for (std::size_t i = 0; i < std::min(kTopUpOrder, best); ++i) {
      const Survivor& one = passed_[hash_at(o_.seed, drawn_++) % best];
      if (one.id >= 0) chosen.push_back(one.candidate);
    }
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    std::vector<Survivor> again;
    std::vector<Runner::Id> ids;
    for (const std::size_t candidate : chosen) {
      again.push_back(passed_.take(candidate));
      ids.push_back(again.back().id);
    }
    KW_ASSIGN(auto sampled, screening_.top_up(ids));
    for (std::size_t i = 0; i < again.size(); ++i) {
      KW_TRY(top_up(again[i], sampled[i]));
      if (trials_[again[i].trial].outcome == Outcome::ok) passed_.insert(std::move(again[i]));
    }
    return {};
  });
}

Result<void> Search::top_up(Survivor& passed, const Runner::Sampled& sampled) {
  Runner::Step step = sampled.step;
  if (step.outcome == Outcome::ok) {
    const double us = sampled.sample.us * std::exp(-screening_.drift());
    if (us < kSuspicious * passed.score_us) {
      KW_ASSIGN(auto checked, in_.runner.check(passed.id, Runner::CheckDepth::screening));
      step = checked.step;
    }
    passed.samples_us.push_back(us);
  }
  if (step.outcome == Outcome::ok) return {};
  passed_.unload(passed);
  return fail(passed.trial, step, "measured again: ");
}

Result<void> Search::finals() {
  report_progress();
  KW_TRY(audit());
  RaceOptions race;
  race.seed = o_.seed;
  race.finalists = o_.finalists;
  race.max_rounds = o_.final_rounds;
  budget_.limit(race, in_.started, elapsed());
  race.settle_seconds = shares_.settle_seconds;
  race.clock_seconds = clock_;
  const FinalsInput input{.candidates = in_.candidates,
                          .default_index = in_.space.default_index,
                          .incumbent = incumbent_,
                          .runner = in_.runner,
                          .race = race,
                          .fail = [this](std::size_t trial, const Runner::Step& step) {
                            return fail(trial, step, "in the finals: ");
                          }};
  KW_ASSIGN(finals_, run_finals(input, passed_, trials_));
  if (finals_.finalists.empty()) return none_passed(in_.problem, trials_);
  for (const FinalsResult::Entry& entry : finals_.finalists)
    note(in_.log.append(trials_[entry.trial]));
  if (const Result<LaunchPaths>& paths = finals_.launch_paths; !paths) {
    if (in_.runner.lost()) return paths.error();
    notes_.push_back(concat("the launch paths could not be measured: ", paths.error().message));
  }
  return audit();
}

SearchResult Search::conclude() {
  SearchResult found;
  TuningRecord& record = found.result.record;
  record.grade = RecordGrade::measured;
  const Decision& decision = finals_.race.decision;
  for (std::size_t i = 0; i < finals_.finalists.size(); ++i) {
    FinalsResult::Entry& entry = finals_.finalists[i];
    if (entry.ranked.is_default) record.baseline = entry.ranked;
    if (i == decision.winner) {
      record.check = trials_[entry.trial].check;
      if (gap_dominated(entry.ranked)) {
        notes_.push_back("the time between kernels is more than a fifth of the winner's");
      }
      record.winner = std::move(entry.ranked);
    } else {
      record.runners_up.push_back(std::move(entry.ranked));
    }
    found.finalists.push_back(std::move(entry.compiled));
  }
  const auto us = [this](const RankedConfiguration& ranked) {
    return final_times(ranked, finals_.race.rounds).in_turn.median_us();
  };
  std::sort(record.runners_up.begin(), record.runners_up.end(),
            [&](const RankedConfiguration& a, const RankedConfiguration& b) {
              return std::pair(!a.in_blocks, us(a)) < std::pair(!b.in_blocks, us(b));
            });
  audit_.merge(screening_.audit());
  audit_.merge(finals_.race.audit);
  record.audit = audit_;
  record.rounds = finals_.race.rounds;
  if (finals_.launch_paths) record.launch_paths = *std::move(finals_.launch_paths);
  record.search.strategy = o_.strategy;
  record.search.seed = o_.seed;
  record.search.rejected = skipped_;
  record.search.compiled = in_.queue.compiled();
  record.search.failed = failed_;
  record.search.raced = finals_.race.raced;
  record.search.seeds = static_cast<int>(in_.space.seeds.size());
  record.search.stop_reason = stop_reason_;
  record.search.regret_estimate = regret_estimate({.best_us = us(record.winner),
                                                   .roofline_us = in_.roofline_us,
                                                   .predicted_us = in_.space.predicted_us,
                                                   .results = results_,
                                                   .optimistic_us = in_.strategy.optimistic_us()});
  record.candidates = candidates();
  record.measured = measured_;
  record.verdict = hardly_looked(record) ? Verdict::unresolved : decision.verdict;
  record.trust = audit_.trust();
  if (record.verdict == Verdict::unresolved) record.trust = std::max(record.trust, Trust::b);
  if (decision.disturbed) record.trust = Trust::c;
  record.settle_ms = 1000 * shares_.settle_seconds;
  shares_.wall_seconds = elapsed();
  shares_.device = in_.runner.take_use();
  record.idle_seconds = shares_.device.idle_seconds();
  record.longest_idle_ms = 1000 * shares_.device.longest_idle_seconds;
  shares_.compile_seconds = in_.queue.compile_seconds();
  shares_.compile_threads = in_.queue.threads();
  record.wall_seconds = shares_.wall_seconds;
  found.result.shares = shares_;
  found.result.notes = std::move(notes_);
  found.result.trials = std::move(trials_);
  return found;
}

}  // namespace

Result<SearchResult> run_search(const SearchInput& input, const TuningOptions& options) {
  return Search(input, options).run();
}

}  // namespace kernwright
