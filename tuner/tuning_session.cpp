#include "tuner/tuning_session.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "support/text.h"
#include "tuner/compile_ahead.h"
#include "tuner/cost_model.h"
#include "tuner/decision.h"
#include "tuner/evidence.h"
#include "tuner/search_strategy.h"
#include "tuner/trial_log.h"

namespace kernwright {
namespace {

constexpr int kScreeningSamples = 3;
/// Finals are sampled in chunks of rounds, between which the clock is asked and the order rotated.
constexpr int kChunkRounds = 8;
/// The most of the budget that is kept back for the finals.
constexpr double kFinalsShare = 0.5;
constexpr std::size_t kRunnersUp = 7;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Everything one run of a session works on.
struct Context {
  const Catalog& catalog;
  const Operation& operation;
  const Problem& problem;
  const DeviceProfile& profile;
  const RecordKey& key;
  const RecordEnvironment& environment;
  CompilePool& pool;
  Runner& runner;
  const ArtifactStore& artifacts;
  const TuningOptions& options;
};

/// One run: screening, finals, record. A trial is added when it ends; those of finalists are then
/// replaced by what the finals measured.
class Search {
 public:
  explicit Search(const Context& context)
      : c_(context),
        clock_(context.options.clock_seconds ? context.options.clock_seconds : steady_seconds),
        start_(clock_()),
        log_(context.options.trial_log) {}

  Result<TuningResult> run();

 private:
  /// A candidate that passed, with what the finals need.
  struct Passed {
    std::size_t candidate = 0;
    std::size_t trial = 0;
    std::string digest;
    std::shared_ptr<const CompiledKernel> kernel;
    double median_us = 0;
    double prepare_seconds = 0;  ///< loading and checking
    double sample_seconds = 0;   ///< per sample
  };

  double elapsed() const { return clock_() - start_; }
  double finals_seconds() const;
  bool out_of_time() const { return elapsed() + finals_seconds() >= c_.options.budget.seconds; }

  Result<void> screen(SearchStrategy& strategy, CompileAhead& ahead);
  Result<void> measure(CompileAhead::Ready ready, SearchStrategy& strategy);
  Result<void> measure_compiled(const Candidate& candidate, Trial& trial, Passed& passed);
  Result<void> finals();
  Result<std::vector<std::size_t>> sample_finalists(std::vector<Passed*>& finalists,
                                                    std::vector<std::vector<double>>& samples);
  /// What fails here costs the log or the cache an entry, never the search its result.
  void note(const Result<void>& kept);
  Result<void> still_there(const Trial& trial) const;
  /// Times `work` as the device's.
  template <typename Work>
  auto measured(Work work);
  void report_progress();
  TuningResult conclude(const CompileAhead& ahead);

  const Context& c_;
  std::function<double()> clock_;
  double start_;
  TrialLog log_;
  CandidateList list_;
  SearchSpace space_;
  std::vector<Trial> trials_;
  std::vector<Passed> passed_;  ///< sorted by median_us
  std::optional<std::size_t> default_trial_;
  std::size_t winner_ = 0;             ///< into passed_
  std::vector<std::size_t> finalist_;  ///< into passed_, by the finals' median
  TimeShares shares_;
  TuningProgress progress_;
};

template <typename Work>
auto Search::measured(Work work) {
  const double before = clock_();
  auto result = work();
  shares_.measure_seconds += clock_() - before;
  return result;
}

double Search::finals_seconds() const {
  double seconds = 0;
  const auto count = static_cast<std::size_t>(std::max(c_.options.finalists, 1)) + 1;
  for (std::size_t i = 0; i < std::min(count, passed_.size()); ++i) {
    seconds += passed_[i].prepare_seconds + c_.options.final_rounds * passed_[i].sample_seconds;
  }
  return std::min(seconds, kFinalsShare * c_.options.budget.seconds);
}

Result<TuningResult> Search::run() {
  note(log_.begin(c_.key, c_.environment));
  auto list = enumerate_candidates(c_.catalog, c_.operation, c_.problem, c_.profile);
  if (!list) return list.error();
  list.value().notes.insert(list.value().notes.begin(), list_.notes.begin(), list_.notes.end());
  list_ = std::move(list).value();
  space_.predicted_us = list_.predicted_us;
  space_.default_index = list_.default_index;
  space_.group_of = list_.group_of;
  std::vector<const KernelTemplate*> templates;
  for (const Candidate& candidate : list_.candidates) {
    space_.configurations.push_back(&candidate.configuration);
    auto known = std::find(templates.begin(), templates.end(), candidate.kernel_template);
    if (known == templates.end()) known = templates.insert(known, candidate.kernel_template);
    space_.template_of.push_back(static_cast<int>(known - templates.begin()));
  }
  progress_.candidates = static_cast<int>(list_.candidates.size());
  auto strategy = make_strategy(c_.options.strategy, space_, c_.options.seed);
  if (!strategy) return strategy.error();
  std::string compiler = c_.environment.compiler;
  if (compiler.empty()) {
    auto identity = c_.pool.compiler().identity();
    if (!identity) return identity.error();
    compiler = std::move(identity).value();
  }
  CompileAhead ahead(list_.candidates, c_.catalog, c_.profile.sm_arch, std::move(compiler), c_.pool,
                     c_.artifacts);
  shares_.setup_seconds = elapsed();

  if (auto done = screen(*strategy.value(), ahead); !done) return done.error();
  if (passed_.empty()) return none_passed(c_.problem.text(), trials_);
  if (auto done = finals(); !done) return done.error();
  return conclude(ahead);
}

Result<void> Search::screen(SearchStrategy& strategy, CompileAhead& ahead) {
  const int allowed = std::max(c_.options.budget.trials, 1);
  int started = 1;
  bool exhausted = false;
  ahead.start(list_.default_index);
  const auto fill = [&] {
    while (!exhausted && started < allowed && ahead.wants_more()) {
      const std::vector<std::size_t> proposal = strategy.propose(1);
      exhausted = proposal.empty();
      for (const std::size_t candidate : proposal) {
        ahead.start(candidate);
        ++started;
      }
    }
  };
  fill();
  const double before = clock_();
  CompileAhead::Ready standard = ahead.wait_for(list_.default_index);
  shares_.idle_seconds += clock_() - before;
  if (auto done = measure(std::move(standard), strategy); !done) return done;
  while (!out_of_time()) {
    fill();
    if (ahead.empty()) break;
    if (auto ready = ahead.take()) {
      progress_.compiled = ahead.compiled();
      if (auto done = measure(*std::move(ready), strategy); !done) return done;
      continue;
    }
    if (started < allowed) {
      if (const auto compiled = strategy.propose_compiled()) {
        ahead.start(*compiled);
        ++started;
        continue;
      }
    }
    const double waiting_since = clock_();
    ahead.wait();
    shares_.idle_seconds += clock_() - waiting_since;
  }
  return {};
}

Result<void> Search::measure(CompileAhead::Ready ready, SearchStrategy& strategy) {
  const Candidate& candidate = list_.candidates[ready.candidate];
  if (!ready.kernel && ready.kernel.error().code == ErrorCode::unavailable) {
    return ready.kernel.error();
  }
  Trial trial = make_trial(candidate, list_.predicted_us[ready.candidate]);
  CompileVerdict verdict = judge(candidate, ready.kernel, c_.profile);
  trial.outcome = verdict.outcome;
  trial.detail = std::move(verdict.detail);
  Passed passed;
  if (ready.kernel) {
    passed = {.candidate = ready.candidate,
              .trial = trials_.size(),
              .digest = std::move(ready.digest),
              .kernel = ready.kernel.value()};
    trial.resources = passed.kernel->resources();
    trial.compile_seconds = passed.kernel->seconds;
  }
  if (trial.outcome == Outcome::ok) {
    auto done = measured([&] { return measure_compiled(candidate, trial, passed); });
    if (!done) return done;
  }
  note(log_.append(trial));
  if (auto there = still_there(trial); !there) return there;
  if (ready.candidate == list_.default_index) default_trial_ = trials_.size();
  if (trial.outcome == Outcome::ok) {
    passed.median_us = trial.measurement.median_us();
    const auto place = std::upper_bound(
        passed_.begin(), passed_.end(), passed,
        [](const Passed& a, const Passed& b) { return a.median_us < b.median_us; });
    passed_.insert(place, std::move(passed));
  }
  strategy.report(ready.candidate, trial);
  trials_.push_back(std::move(trial));
  report_progress();
  return {};
}

/// Loads, checks and screens; fills in the trial.
Result<void> Search::measure_compiled(const Candidate& candidate, Trial& trial, Passed& passed) {
  const auto take = [&trial](const Runner::Step& step) {
    if (step.outcome == Outcome::ok) return true;
    trial.outcome = step.outcome;
    trial.detail = step.detail;
    return false;
  };
  const double before = clock_();
  auto prepared = c_.runner.prepare(candidate, *passed.kernel);
  if (!prepared) return prepared.error();
  if (!take(prepared.value().step)) return {};
  const Runner::Id id = prepared.value().id;
  auto checked = c_.runner.check(id, Runner::CheckDepth::screening);
  if (!checked) return checked.error();
  trial.check = checked.value().report;
  const double between = clock_();
  passed.prepare_seconds = between - before;
  if (take(checked.value().step)) {
    const std::vector<Runner::Id> order(kScreeningSamples, id);
    auto sampled = c_.runner.sample(order);
    if (!sampled) return sampled.error();
    for (const Runner::Sampled& one : sampled.value()) {
      if (!take(one.step)) break;
      trial.measurement.samples_us.push_back(one.sample.us);
    }
    passed.sample_seconds = (clock_() - between) / kScreeningSamples;
    if (trial.outcome == Outcome::ok) {
      auto again = c_.runner.check_after_timing(id);
      if (!again) return again.error();
      take(again.value().step);
    }
  }
  c_.runner.drop(id);
  return {};
}

Result<void> Search::still_there(const Trial& trial) const {
  if (!c_.runner.lost()) return {};
  return Error{ErrorCode::device, concat("the device was lost to ", trial.id(), " (",
                                         to_string(trial.outcome), "): ", trial.detail)};
}

Result<void> Search::finals() {
  std::vector<Passed*> finalists;
  const auto count = static_cast<std::size_t>(std::max(c_.options.finalists, 1));
  for (std::size_t i = 0; i < passed_.size(); ++i) {
    if (i < count || passed_[i].candidate == list_.default_index) finalists.push_back(&passed_[i]);
  }
  std::vector<std::vector<double>> samples(finalists.size());
  auto survivors = sample_finalists(finalists, samples);
  if (!survivors) return survivors.error();
  if (survivors.value().empty()) return none_passed(c_.problem.text(), trials_);

  std::vector<Finalist> final;
  for (const std::size_t i : survivors.value()) {
    const Passed& passed = *finalists[i];
    Trial& trial = trials_[passed.trial];
    trial.measurement.samples_us = samples[i];
    note(log_.append(trial));
    const Candidate& candidate = list_.candidates[passed.candidate];
    final.push_back({{.id = trial.id(),
                      .is_default = passed.candidate == list_.default_index,
                      .warned = !passed.kernel->warnings.empty(),
                      .registers = trial.resources.registers,
                      .smem_bytes = trial.resources.static_smem_bytes +
                                    std::int64_t{candidate.plan.launches.front().dynamic_smem}},
                     std::move(samples[i])});
    finalist_.push_back(static_cast<std::size_t>(finalists[i] - passed_.data()));
  }
  winner_ = finalist_[decide(final, {}).winner];
  const auto median_us = [this](std::size_t i) {
    return trials_[passed_[i].trial].measurement.median_us();
  };
  std::sort(finalist_.begin(), finalist_.end(),
            [&](std::size_t a, std::size_t b) { return median_us(a) < median_us(b); });
  for (const std::size_t i : finalist_) {
    if (!c_.artifacts.get(passed_[i].digest)) {
      note(c_.artifacts.put(passed_[i].digest, *passed_[i].kernel));
    }
  }
  return {};
}

/// Interleaved samples of all finalists until the rounds or the time are over. Returns the indices
/// of those that stayed right; they have equally many samples.
Result<std::vector<std::size_t>> Search::sample_finalists(
    std::vector<Passed*>& finalists, std::vector<std::vector<double>>& samples) {
  struct Entry {
    std::size_t index;
    Runner::Id id;
  };
  std::vector<Entry> alive;
  const auto fail = [&](std::size_t index, const Runner::Step& step) -> Result<void> {
    Trial& trial = trials_[finalists[index]->trial];
    trial.outcome = step.outcome;
    trial.detail = concat("in the finals: ", step.detail);
    note(log_.append(trial));
    return still_there(trial);
  };
  for (std::size_t i = 0; i < finalists.size(); ++i) {
    const Candidate& candidate = list_.candidates[finalists[i]->candidate];
    auto prepared = measured([&] { return c_.runner.prepare(candidate, *finalists[i]->kernel); });
    if (!prepared) return prepared.error();
    if (prepared.value().step.outcome == Outcome::ok) {
      alive.push_back({i, prepared.value().id});
    } else if (auto failed = fail(i, prepared.value().step); !failed) {
      return failed.error();
    }
  }
  for (int round = 0; round < c_.options.final_rounds && !alive.empty(); round += kChunkRounds) {
    if (round > 0 && elapsed() >= c_.options.budget.seconds) break;
    const int rounds = std::min(kChunkRounds, c_.options.final_rounds - round);
    std::vector<Runner::Id> order;
    for (int i = 0; i < rounds; ++i) {
      for (const Entry& entry : alive) order.push_back(entry.id);
    }
    auto sampled = measured([&] { return c_.runner.sample(order); });
    if (!sampled) return sampled.error();
    std::vector<Entry> left;
    for (std::size_t i = 0; i < alive.size(); ++i) {
      Runner::Step step;
      std::vector<double> taken;
      for (std::size_t at = i; at < order.size(); at += alive.size()) {
        step = sampled.value()[at].step;
        taken.push_back(sampled.value()[at].sample.us);
      }
      if (step.outcome == Outcome::ok && round + rounds >= c_.options.final_rounds) {
        auto again = measured([&] { return c_.runner.check_after_timing(alive[i].id); });
        if (!again) return again.error();
        step = again.value().step;
      }
      if (step.outcome != Outcome::ok) {
        if (auto failed = fail(alive[i].index, step); !failed) return failed.error();
        continue;
      }
      auto& all = samples[alive[i].index];
      all.insert(all.end(), taken.begin(), taken.end());
      left.push_back(alive[i]);
    }
    alive = std::move(left);
    if (!alive.empty()) std::rotate(alive.begin(), alive.begin() + 1, alive.end());
  }
  std::vector<std::size_t> survivors;
  for (const Entry& entry : alive) {
    survivors.push_back(entry.index);
    c_.runner.drop(entry.id);
  }
  std::sort(survivors.begin(), survivors.end());
  return survivors;
}

void Search::note(const Result<void>& kept) {
  if (kept) return;
  const std::string& message = kept.error().message;
  if (std::find(list_.notes.begin(), list_.notes.end(), message) == list_.notes.end()) {
    list_.notes.push_back(message);
  }
}

void Search::report_progress() {
  progress_.measured = static_cast<int>(passed_.size());
  progress_.failed = static_cast<int>(trials_.size() - passed_.size());
  progress_.seconds = elapsed();
  if (!passed_.empty()) {
    progress_.best_us = passed_.front().median_us;
    progress_.best = trials_[passed_.front().trial].id();
  }
  if (c_.options.progress) c_.options.progress(progress_);
}

TuningResult Search::conclude(const CompileAhead& ahead) {
  const auto ranked = [this](const Passed& passed) {
    return ranked_configuration(trials_[passed.trial], passed.digest);
  };
  TuningResult result;
  TuningRecord& record = result.record;
  record.key = c_.key;
  record.environment = c_.environment;
  record.grade = RecordGrade::measured;
  record.winner = ranked(passed_[winner_]);
  record.check = trials_[passed_[winner_].trial].check;
  for (const std::size_t i : finalist_) {
    if (passed_[i].candidate == list_.default_index) record.baseline = ranked(passed_[i]);
    if (i != winner_ && record.runners_up.size() < kRunnersUp) {
      record.runners_up.push_back(ranked(passed_[i]));
    }
  }
  record.candidates = static_cast<int>(list_.candidates.size());
  record.measured = static_cast<int>(passed_.size());
  record.device_name = c_.profile.name;
  record.roofline_us = roofline_us(c_.operation, c_.problem, c_.profile);
  record.created = utc_now();
  shares_.wall_seconds = elapsed();
  shares_.compile_seconds = ahead.compile_seconds();
  shares_.compile_threads = c_.pool.threads();
  record.wall_seconds = shares_.wall_seconds;
  result.rejected = list_.rejected;
  result.notes = std::move(list_.notes);
  result.shares = shares_;
  result.trials = std::move(trials_);
  return result;
}

}  // namespace

TuningSession::TuningSession(const Catalog& catalog, const Operation& operation, Problem normalized,
                             const DeviceProfile& profile, RecordKey key,
                             RecordEnvironment environment, CompilePool& pool, Runner& runner,
                             const ArtifactStore& artifacts, TuningOptions options)
    : catalog_(catalog),
      operation_(operation),
      problem_(std::move(normalized)),
      profile_(profile),
      key_(std::move(key)),
      environment_(std::move(environment)),
      pool_(pool),
      runner_(runner),
      artifacts_(artifacts),
      options_(std::move(options)) {}

Result<TuningResult> TuningSession::run() {
  const Context context{catalog_,     operation_, problem_, profile_,   key_,
                        environment_, pool_,      runner_,  artifacts_, options_};
  return Search(context).run();
}

}  // namespace kernwright
