#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "cache/entries/key_lock.h"
#include "cache/stores/lookup_log.h"
#include "service/serve/core.h"
#include "support/hash.h"
#include "support/text.h"
#include "support/try.h"
#include "support/utc.h"

namespace kernwright {
namespace {

// A prediction that is to be launched compiles until one candidate succeeds: tuning can follow.
constexpr TuningBudget kPredictAtLaunch{.trials = 1};

// The number that a record keeps.
constexpr std::size_t kMostPredicted = 8;

// How long a tuned miss waits for another process that tunes the same problem.
constexpr std::chrono::minutes kPatienceToTune{2};

/// Returns a record that was made just now, as a lookup would find it.
GradedRecord graded(const TuningResult& made, Match match, MissReason reason) {
  return {
      .head = head_of(made.record), .match = match, .reason = reason, .file = made.file.string()};
}

}  // namespace

Result<std::vector<Kernel>> ServiceCore::get_best_kernels(const Problem& problem,
                                                          std::size_t count) {
  KW_ASSIGN(const Kernel best, get_best_kernel(problem));
  KW_ASSIGN(const BoundProblem bound, bind(problem));
  const ServedKernel& served = ServedKernel::of(*LoadedKernel::of(best));  // the table keeps it
  std::vector<Kernel> kernels;
  if (count > 0) kernels.push_back(best);
  ServedKernel::Alternatives& others = served.alternatives();
  const MutexLock lock(others.mutex);
  if (!others.records) others.records = next_best(bound, served.record(), count);
  while (others.loaded.size() + 1 < count && others.tried < others.records->size()) {
    load_one(bound, served, others);
  }
  for (const auto& kernel : others.loaded) {
    if (kernels.size() < count) kernels.push_back(kernel->handle());
  }
  return kernels;
}

std::vector<GradedRecord> ServiceCore::next_best(const BoundProblem& problem,
                                                 const GradedRecord& record, std::size_t count) {
  std::vector<GradedRecord> found = answers_.next_best(problem, record);
  // The prediction that is made at a miss compiles one candidate alone.
  if (record.match == Match::predicted && may_compile() && found.size() + 1 < count) {
    const Result<TuningResult> more =
        desk_.predict(problem, {.trials = static_cast<int>(std::min(count, kMostPredicted))});
    if (more) found = answers_.next_best(problem, graded(*more, record.match, record.reason));
  }
  return found;
}

void ServiceCore::load_one(const BoundProblem& problem, const ServedKernel& best,
                           ServedKernel::Alternatives& others) const {
  const GradedRecord& record = (*others.records)[others.tried++];
  const auto is_same = [&](const LoadedKernel& other, const Offer& offer) {
    return other.summary().artifact == offer.artifact.digest &&
           same_in_chain(other.plan(), offer.candidate.plan);
  };
  const Loaded loaded = [&](const auto& before) -> Loaded {
    KW_ASSIGN(Offer offer, answers_.offer(problem, record, bits()));
    for (const auto& other : before) {
      if (is_same(*other, offer)) return other;
    }
    if (is_same(best, offer)) return best.shared_from_this();
    return load(problem, record, std::move(offer));
  }(others.loaded);
  if (!loaded) {
    site_.say(LogLevel::warning, concat(record.head.winner.choice.id(), " for ", problem.text(),
                                        " is passed over: ", loaded.error().message));
    return;
  }
  const auto known = std::ranges::find(others.loaded, *loaded);
  if (loaded->get() != &best && known == others.loaded.end()) others.loaded.push_back(*loaded);
}

ServiceCore::Loaded ServiceCore::resolve(const BoundProblem& problem) {
  Coverage coverage;
  if (auto served = serve_from_cache(problem, coverage)) {
    count(problem, coverage.match, coverage.reason);
    if (coverage.match > Match::family && coverage.reason != MissReason::pinned) {
      tune_in_background(problem.problem());
    }
    if (coverage.of_family || coverage.match >= Match::bucket) {
      make_shortlist_in_background(problem);
    }
    return served;
  }
  if (auto served = serve_from_shortlist(problem, coverage)) {
    count(problem, Match::predicted, coverage.reason);
    tune_in_background(problem.problem());
    return served;
  }
  count(problem, Match::none, coverage.reason);
  Loaded made = make(problem, coverage);
  if (made) {
    tune_in_background(problem.problem());
    make_shortlist_in_background(problem);
  }
  return made;
}

std::shared_ptr<const LoadedKernel> ServiceCore::serve_from_shortlist(const BoundProblem& problem,
                                                                      const Coverage& missing) {
  if (!predicts()) return nullptr;
  std::optional<Shortlists::Answer> found =
      shortlists_.find(problem, missing.decisions, may_compile());
  if (!found) return nullptr;
  Loaded loaded = load(problem,
                       {.head = std::move(found->head),
                        .match = Match::predicted,
                        .reason = missing.reason,
                        .file = {}},
                       std::move(found->offer));
  if (loaded) return *std::move(loaded);
  site_.say(LogLevel::warning,
            concat(problem.text(), " is not answered by a shortlist: ", loaded.error().message));
  return nullptr;
}

std::shared_ptr<const Launcher> ServiceCore::load_ahead(const Offer& offer) const {
  if (!site_.has_device) return nullptr;
  Result<std::unique_ptr<Launcher>> launcher = surroundings_.load_launcher(
      offer.artifact.kernel->bits, offer.candidate.plan, options_.device);
  return launcher ? std::shared_ptr<const Launcher>(std::move(*launcher)) : nullptr;
}

std::shared_ptr<const LoadedKernel> ServiceCore::serve_from_cache(const BoundProblem& problem,
                                                                  Coverage& coverage) {
  const Match worst =
      tuning_seconds() ? std::min(options_.min_match, kWorstUntuned) : options_.min_match;
  std::shared_ptr<const LoadedKernel> served;
  coverage =
      answers_.find(problem, worst, bits(), [&](const GradedRecord& record, Result<Offer> offer) {
        Loaded loaded = offer ? load(problem, record, *std::move(offer)) : std::move(offer).error();
        if (!loaded) {
          site_.say(LogLevel::warning, concat("a record of ", record.head.key.problem,
                                              " is passed over: ", loaded.error().message));
          return false;
        }
        served = *std::move(loaded);
        return true;
      });
  return served;
}

ServiceCore::Loaded ServiceCore::make(const BoundProblem& problem, Coverage missing) {
  const std::string key = site_.key(problem).text();
  if (options_.min_match != Match::none) {
    return Error{ErrorCode::not_found,
                 concat("no kernel for ", key, " of match ", to_string(options_.min_match),
                        " or better; the best is ", to_string(missing.best), " (",
                        to_string(missing.reason), ')')};
  }
  const std::optional<double> seconds = tuning_seconds();
  if (options_.on_miss == MissPolicy::fail && !seconds) {
    return Error{ErrorCode::not_found,
                 concat("no record for ", key, " (", to_string(missing.reason),
                        ") and the miss policy is fail")};
  }
  if (builder_.seal().refuses()) {
    KW_TRY(builder_.seal().admit(problem.text(), to_string(missing.reason)));
  }
  // If several processes miss one key, one of them makes the record, and the others are served it.
  const KeyLock turn = KeyLock::acquire(
      site_.cache.root(), digest_of(key).hex(),
      seconds ? std::chrono::milliseconds(kPatienceToTune) : surroundings_.patience);
  if (auto served = serve_from_cache(problem, missing)) return served;
  if (seconds) {
    const AwaitedTunings::Awaited awaited(awaited_);
    KW_ASSIGN(const TuningResult tuned,
              desk_.tune(problem, {.budget = {.seconds = *seconds}}, awaited.stop()));
    return load(problem, tuned, Match::exact, MissReason::none);
  }
  KW_ASSIGN(const TuningResult predicted, desk_.predict(problem, kPredictAtLaunch));
  return load(problem, predicted, Match::predicted, missing.reason);
}

ServiceCore::Loaded ServiceCore::load(const BoundProblem& problem, GradedRecord record,
                                      Offer offer) const {
  std::unique_ptr<Launcher> launcher;
  if (site_.has_device) {
    KW_ASSIGN(launcher, surroundings_.load_launcher(offer.artifact.kernel->bits,
                                                    offer.candidate.plan, options_.device));
    loaded_kernels_.fetch_add(1, std::memory_order_relaxed);
    loaded_bytes_.fetch_add(offer.artifact.kernel->bits.size(), std::memory_order_relaxed);
  }
  return served(problem, std::move(record), std::move(offer), std::move(launcher));
}

ServiceCore::Loaded ServiceCore::served(const BoundProblem& problem, GradedRecord record,
                                        Offer offer, std::unique_ptr<Launcher> launcher) const {
  KernelSummary summary = summarize(problem.problem(), record, std::move(offer.artifact.digest));
  return Loaded(std::make_shared<const ServedKernel>(
      std::make_shared<const GradedRecord>(std::move(record)), std::move(summary),
      std::make_shared<const CompactPlan>(std::move(offer.candidate.plan)), std::move(launcher),
      why_not_launched(), options_.check_launches));
}

Error ServiceCore::why_not_launched() const {
  if (site_.has_device) return {};
  return {ErrorCode::unavailable,
          concat("this service works for the sku ", site_.profile.id, " without a GPU")};
}

ServiceCore::Loaded ServiceCore::load(const BoundProblem& problem, const TuningResult& made,
                                      Match match, MissReason reason) const {
  GradedRecord record = graded(made, match, reason);
  MissReason refused = MissReason::none;
  KW_ASSIGN(Candidate winner, answers_.candidate(problem, record.head.winner, refused));
  std::string artifact = record.head.winner.artifact;
  return load(problem, std::move(record),
              {.candidate = std::move(winner),
               .artifact = {.digest = std::move(artifact), .kernel = made.kernel}});
}

void ServiceCore::count(const BoundProblem& problem, Match match, MissReason reason) {
  counters_.add(match, reason);
  if (match <= Match::family) return;
  // A directory that cannot be written to costs the log alone.
  static_cast<void>(
      LookupLog::of_misses(site_.cache.root())
          .append(
              {.key = site_.key(problem), .match = match, .reason = reason, .time = utc_now()}));
}

}  // namespace kernwright
