// What of ServiceCore chooses which record answers, and loads it.

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "cache/entries/key_lock.h"
#include "cache/stores/miss_log.h"
#include "launch/launch_once.h"
#include "service/serve/core.h"
#include "support/hash.h"
#include "support/text.h"
#include "support/try.h"
#include "support/utc.h"

namespace kernwright {
namespace {

// A prediction that is to be launched compiles one candidate that does: tuning can follow.
constexpr TuningBudget kPredictAtLaunch{.trials = 1};

// How long a miss that is tuned waits for another process that tunes the same.
constexpr std::chrono::minutes kPatienceToTune{2};

KernelSummary summarize(const Problem& normalized, const RecordHead& head, Match match,
                        MissReason reason, std::string artifact) {
  return {.problem = normalized.text(),
          .kernel_template = head.winner.choice.kernel_template,
          .configuration = head.winner.choice.configuration.text(),
          .artifact = std::move(artifact),
          .match = match,
          .reason = reason,
          .measured_us = head.winner.measured_us,
          .predicted_us = head.winner.predicted_us,
          .roofline_us = head.roofline_us,
          .best_path = head.winner.best_path};
}

}  // namespace

TieredCache::Now ServiceCore::now() const {
  RecordEnvironment today = environment();
  return {.compiler = std::move(today.compiler),
          .driver = std::move(today.driver),
          .kernwright = std::move(today.kernwright)};
}

Answers ServiceCore::look_up(const Problem& normalized) const {
  Answers answers = cache_.lookup(key(normalized), now(),
                                  [this](std::string_view name) { return template_digest(name); });
  for (const std::string& defect : answers.defects) {
    log(LogLevel::warning, concat("passed over in the cache: ", defect));
  }
  return answers;
}

std::vector<GradedRecord> ServiceCore::records(const Problem& normalized,
                                               MissReason& reason) const {
  Answers answers = look_up(normalized);
  reason = answers.reason;
  return std::move(answers.records);
}

std::vector<GradedRecord> ServiceCore::answers(const Named& named, MissReason& reason) const {
  Answers own = look_up(named.problem);
  reason = own.reason;
  std::vector<GradedRecord>& records = own.records;
  if (!records.empty() && records.front().match < Match::bucket) return std::move(records);
  std::vector<GradedRecord> near = cache_.near(
      key(named.problem), *named.operation, named.problem, now(),
      [this](std::string_view name) { return template_digest(name); }, own.decisions);
  records.insert(records.begin(), std::make_move_iterator(near.begin()),
                 std::make_move_iterator(near.end()));
  return std::move(records);
}

void ServiceCore::count(const Problem& normalized, Match match, MissReason reason) {
  counters_.add(match, reason);
  if (match == Match::exact) return;
  // A directory that cannot be written to costs the log alone.
  static_cast<void>(
      MissLog(cache_.root())
          .append({.key = key(normalized), .match = match, .reason = reason, .time = utc_now()}));
}

Result<const LoadedKernel*> ServiceCore::resolve(const Named& named) {
  Coverage best;
  if (const LoadedKernel* served = serve_from_cache(named, best)) {
    const KernelSummary& summary = served->summary();
    count(named.problem, summary.match, summary.reason);
    if (background_ && summary.match != Match::exact && summary.reason != MissReason::pinned) {
      ask_background(named.problem);
    }
    return served;
  }
  count(named.problem, Match::none, best.reason);
  Result<const LoadedKernel*> made = fall_back(named, best);
  if (made && background_) ask_background(named.problem);
  return made;
}

const LoadedKernel* ServiceCore::serve_from_cache(const Named& named, Coverage& best) {
  best = {};
  for (const GradedRecord& found : answers(named, best.reason)) {
    if (best.match == Match::none) best = {.match = found.match, .reason = found.reason};
    const bool provisional = found.match == Match::predicted || found.match == Match::bucket;
    if (provisional && options_.on_miss == MissPolicy::tune_now) continue;
    if (found.match > options_.min_match) continue;
    Result<const LoadedKernel*> served = serve(named, found.head, found.match, found.reason);
    if (served) return *served;
    log(LogLevel::warning, concat("a record of ", found.head.key.problem,
                                  " is passed over: ", served.error().message));
  }
  return nullptr;
}

Result<const LoadedKernel*> ServiceCore::fall_back(const Named& named, Coverage best) {
  if (!may_compile()) {
    return Error{ErrorCode::not_found,
                 concat("no kernel for ", key(named.problem).text(), " of match ",
                        to_string(options_.min_match), " or better; the best is ",
                        to_string(best.match), " (", to_string(best.reason), ')')};
  }
  switch (options_.on_miss) {
    case MissPolicy::fail:
      return Error{ErrorCode::not_found,
                   concat("no record for ", key(named.problem).text(), " (", to_string(best.reason),
                          ") and the miss policy is fail")};
    case MissPolicy::tune_now: {
      // Of several processes that miss one key one tunes it.
      const KeyLock turn = KeyLock::acquire(
          cache_.root(), digest_of(key(named.problem).text()).hex(), kPatienceToTune);
      if (const LoadedKernel* served = serve_from_cache(named, best)) return served;
      TuningOptions tuning;
      tuning.budget.seconds = options_.tune_seconds;
      Result<TuningResult> tuned = tune(named.problem, std::move(tuning));
      if (!tuned) return std::move(tuned).error();
      return hot_.find(named.problem);
    }
    case MissPolicy::predict:
    case MissPolicy::tune_in_background:
      break;
  }
  // Of several processes that miss one key one predicts it, and the others are served its record.
  const KeyLock turn = KeyLock::acquire(cache_.root(), digest_of(key(named.problem).text()).hex(),
                                        surroundings_.patience);
  if (const LoadedKernel* served = serve_from_cache(named, best)) return served;
  Result<TuningResult> predicted = predict(named.problem, kPredictAtLaunch);
  if (!predicted) return std::move(predicted).error();
  return serve(named, head_of(predicted->record), Match::predicted, best.reason);
}

Result<Candidate> ServiceCore::candidate_of(const Named& named, const HeadWinner& winner,
                                            MissReason& refused) const {
  refused = MissReason::template_missing;
  KW_ASSIGN(const KernelTemplate* found, catalog_->kernel_template(winner.choice.kernel_template));
  refused = MissReason::rule_violated;
  KW_TRY(applies(*found, *named.operation, named.problem, profile_));
  return make_candidate(*found, *named.operation, named.problem, winner.choice.configuration,
                        profile_);
}

bool ServiceCore::has_own_bits(const Named& named, const RecordHead& head,
                               MissReason reason) const {
  if (reason == MissReason::template_changed || head.winner.artifact.empty()) return false;
  if (reason != MissReason::other_shape) return true;
  const Result<const KernelTemplate*> found =
      catalog_->kernel_template(head.winner.choice.kernel_template);
  const Result<Problem> measured = Problem::parse(head.key.problem);
  if (!found || !measured) return false;
  const Scope asked = named.operation->scope(named.problem);
  const Scope known = named.operation->scope(*measured);
  return std::ranges::all_of((*found)->constant_dims, [&](const std::string& dim) {
    return asked.find(dim) == known.find(dim);
  });
}

Result<ServiceCore::Fetched> ServiceCore::fetch(const Named& named, const RecordHead& head,
                                                MissReason reason) {
  MissReason refused = MissReason::none;
  KW_ASSIGN(Candidate candidate, candidate_of(named, head.winner, refused));

  Artifact artifact;
  if (has_own_bits(named, head, reason)) {
    Lookup<CompiledKernel> stored = cache_.artifact(head.winner.artifact);
    if (stored) {
      artifact = {.digest = head.winner.artifact,
                  .kernel = std::make_shared<const CompiledKernel>(*std::move(stored.value)),
                  .cached = true};
    }
  }
  if (!artifact.kernel && !may_compile()) {
    return Error{ErrorCode::not_found, concat("its bits, ", head.winner.artifact,
                                              ", are not stored, and nothing may be compiled")};
  }
  if (!artifact.kernel) {
    KW_ASSIGN(artifact, compile(candidate));
  }
  return Fetched{std::move(candidate), std::move(artifact)};
}

Result<const LoadedKernel*> ServiceCore::serve(const Named& named, const RecordHead& head,
                                               Match match, MissReason reason) {
  KW_ASSIGN(Fetched fetched, fetch(named, head, reason));
  auto& [candidate, artifact] = fetched;
  std::unique_ptr<Launcher> launcher;
  Error why_not{ErrorCode::unavailable,
                concat("this service works for the sku ", profile_.id, " without a GPU")};
  if (has_device_) {
    KW_ASSIGN(launcher,
              surroundings_.load_launcher(artifact.kernel->bits, candidate.plan, options_.device));
  }
  return keep(std::make_shared<LoadedKernel>(
      summarize(named.problem, head, match, reason, std::move(artifact.digest)),
      std::move(candidate.plan), std::move(launcher), std::move(why_not), options_.check_launches));
}

const LoadedKernel* ServiceCore::keep(std::shared_ptr<LoadedKernel> kernel) {
  const LoadedKernel* raw = kernel.get();
  const std::lock_guard lock(kept_mutex_);
  kept_.push_back(std::move(kernel));
  return raw;
}

ServiceCore::Coverage ServiceCore::coverage(const Problem& normalized) const {
  Coverage missing;
  const Result<Named> named = name(normalized);
  if (!named) return missing;
  bool first = true;
  for (const GradedRecord& found : answers(*named, missing.reason)) {
    MissReason refused = MissReason::none;
    MissReason lacks = found.reason;
    if (found.match <= options_.min_match) {
      if (!candidate_of(*named, found.head.winner, refused)) {
        lacks = refused;
      } else if (has_own_bits(*named, found.head, found.reason)) {  // else they would be compiled
        if (cache_.artifact(found.head.winner.artifact)) {
          return {.match = found.match, .reason = found.reason};
        }
        lacks = MissReason::artifact_missing;
      }
    }
    if (first) missing.reason = lacks;
    first = false;
  }
  return missing;
}

Result<void> ServiceCore::canary(const Problem& problem) {
  if (!has_device_) {
    return Error{ErrorCode::unavailable,
                 concat("nothing is launched for the sku ", profile_.id, " without a GPU")};
  }
  KW_ASSIGN(const Named named, name(problem));
  MissReason reason = MissReason::none;
  for (const GradedRecord& found : answers(named, reason)) {
    if (found.match > options_.min_match) continue;
    const Result<Fetched> fetched = fetch(named, found.head, found.reason);
    if (!fetched) continue;
    KW_ASSIGN(const std::unique_ptr<Device> device, surroundings_.open_device(options_.device));
    return launch_once(*device, fetched->artifact.kernel->bits, fetched->candidate.plan);
  }
  return Error{ErrorCode::not_found, concat("nothing is served for ", named.problem.text(), " (",
                                            to_string(reason), ")")};
}

}  // namespace kernwright
