#include "tuner/tuning_session.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "support/utc.h"
#include "tuner/compile_ahead.h"
#include "tuner/cost_model.h"
#include "tuner/evidence.h"
#include "tuner/search_space.h"
#include "tuner/trial_log.h"

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
      options_(std::move(options)) {
  if (!options_.clock_seconds) options_.clock_seconds = steady_seconds;
}

Result<TuningResult> TuningSession::run() {
  const TuningBudget& budget = options_.budget;
  const double started =
      options_.clock_seconds() - std::min(budget.opening_seconds, kOpeningShare * budget.seconds);
  std::vector<std::string> notes;
  const auto note = [&notes](const Result<void>& kept) {
    if (!kept) notes.push_back(kept.error().message);
  };
  TrialLog log(options_.trial_log);
  note(log.begin(key_, environment_));
  auto list = enumerate_candidates(catalog_, operation_, problem_, profile_);
  if (!list) return list.error();
  std::vector<SeedConfiguration> seeds = options_.seeds;
  if (options_.incumbent) seeds.insert(seeds.begin(), *options_.incumbent);
  const SearchSpace space = make_search_space(list.value(), profile_, seeds);
  auto strategy = make_strategy(options_.strategy, space, options_.seed);
  if (!strategy) return strategy.error();
  std::string compiler = environment_.compiler;
  if (compiler.empty()) {
    auto identity = pool_.compiler().identity();
    if (!identity) return identity.error();
    compiler = std::move(identity).value();
  }
  CompileAhead ahead(list.value().candidates, catalog_, profile_.sm_arch, std::move(compiler),
                     pool_, artifacts_);
  const double roofline = roofline_us(operation_, problem_, profile_);
  const SearchInput input{.candidates = list.value().candidates,
                          .space = space,
                          .profile = profile_,
                          .strategy = *strategy.value(),
                          .queue = ahead,
                          .runner = runner_,
                          .log = log,
                          .problem = problem_.text(),
                          .power = key_.policy.power,
                          .roofline_us = roofline,
                          .started = started};
  auto found = run_search(input, options_);
  if (!found) return found.error();
  for (const CompiledCandidate& finalist : found.value().finalists) {
    if (!artifacts_.get(finalist.digest)) {
      note(artifacts_.put(finalist.digest, *finalist.kernel));
    }
  }
  TuningResult result = std::move(found.value().result);
  result.record.key = key_;
  result.record.environment = environment_;
  result.record.device_name = profile_.name;
  result.record.roofline_us = roofline;
  result.record.created = utc_now();
  result.record.search.rejected += list.value().rejected;
  result.rejected = list.value().rejected;
  for (std::string& message : list.value().notes) notes.push_back(std::move(message));
  for (std::string& message : result.notes) {
    if (std::find(notes.begin(), notes.end(), message) == notes.end()) {
      notes.push_back(std::move(message));
    }
  }
  result.notes = std::move(notes);
  return result;
}

}  // namespace kernwright
