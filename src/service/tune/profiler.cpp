#include "service/tune/profiler.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "support/steady_seconds.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/session/gpu_lock.h"

namespace kernwright {

Result<StoredRecord> find_record(const AnswerFinder& answers, const BoundProblem& problem) {
  const Answers found = answers.look_up(problem);
  const auto stored = std::ranges::find_if(
      found.records, [](const GradedRecord& record) { return !record.file.empty(); });
  if (stored == found.records.end()) {
    return Error{ErrorCode::not_found, concat("no record for ", problem.text(), ": ",
                                              to_string(found.reason), "; tune it first")};
  }
  const Lookup<TuningRecord> read = read_record(stored->file);
  if (!read) {
    return Error{ErrorCode::corrupt, concat(to_string(read.reason), ": ", read.detail)};
  }
  return StoredRecord{*read.value, stored->file};
}

std::vector<const RankedConfiguration*> profiled_candidates(const TuningRecord& record, int more) {
  std::vector<const RankedConfiguration*> chosen{&record.winner};
  const auto add = [&](const RankedConfiguration& ranked) {
    const bool known = std::ranges::any_of(
        chosen, [&](const RankedConfiguration* one) { return one->choice == ranked.choice; });
    if (!known) chosen.push_back(&ranked);
    return !known;
  };
  if (record.baseline) add(*record.baseline);
  for (const RankedConfiguration& ranked : record.runners_up) {
    if (more > 0 && add(ranked)) --more;
  }
  return chosen;
}

void add_counters(TuningRecord& record, CounterSet set) {
  std::erase_if(record.counters, [&](const CounterSet& old) {
    return old.choice == set.choice && old.source == set.source && old.cache == set.cache;
  });
  record.counters.push_back(std::move(set));
}

Profiler::Profiler(const Site& site, Builder& builder, const AnswerFinder& answers,
                   std::vector<std::filesystem::path> template_dirs, Open open)
    : site_(site),
      builder_(builder),
      answers_(answers),
      template_dirs_(std::move(template_dirs)),
      open_(std::move(open)) {}

Result<std::unique_ptr<Measuring>> Profiler::in_worker(MeasuringContext context) {
  return measure_in_worker(std::move(context), {});
}

Result<Measuring*> Profiler::counting() {
  if (counting_ == nullptr) {
    KW_ASSIGN(
        counting_,
        open_({.catalog = *site_.catalog,
               .template_dirs = template_dirs_,
               .profile = site_.profile,
               .identity = site_.identity,
               .pool = builder_.pool(),
               .cache_root = site_.cache.root(),
               .log = [this](std::string_view line) { site_.say(LogLevel::warning, line); },
               .inform = [this](std::string_view line) { site_.say(LogLevel::info, line); }}));
  }
  if (counting_->lost()) return Error{ErrorCode::device, "the GPU was lost to an earlier failure"};
  return counting_.get();
}

Result<std::shared_ptr<const CompiledKernel>> Profiler::bits_of(const Candidate& candidate,
                                                                const RankedConfiguration& ranked) {
  if (!ranked.artifact.empty()) {
    Lookup<CompiledKernel> stored = site_.cache.artifact(ranked.artifact);
    if (stored) return std::make_shared<const CompiledKernel>(*std::move(stored.value));
  }
  KW_ASSIGN(Artifact built, builder_.build(candidate));
  if (!ranked.artifact.empty() && built.digest != ranked.artifact) {
    return Error{ErrorCode::not_found,
                 "the bits that were measured are not in the cache, and today it compiles to "
                 "others; tune the problem again"};
  }
  return std::move(built.kernel);
}

Result<void> Profiler::count(Runner& runner, const BoundProblem& problem,
                             const RankedConfiguration& ranked, TuningRecord& record) {
  MissReason refused = MissReason::none;
  KW_ASSIGN(const Candidate candidate,
            answers_.candidate(problem, {.choice = ranked.choice, .artifact = {}}, refused));
  KW_ASSIGN(const auto kernel, bits_of(candidate, ranked));
  KW_ASSIGN(const Runner::Prepared prepared, runner.prepare(candidate, *kernel));
  if (prepared.step.outcome != Outcome::ok) {
    return Error{ErrorCode::device,
                 concat(to_string(prepared.step.outcome), ' ', prepared.step.detail)};
  }
  for (const L2State cache : {L2State::cold, L2State::warm}) {
    KW_ASSIGN(CounterSet set, runner.count(prepared.id, cache));
    set.choice = ranked.choice;
    add_counters(record, std::move(set));
  }
  runner.drop(prepared.id);
  return {};
}

Result<Profiled> Profiler::profile(const BoundProblem& problem, int more) {
  if (!site_.has_device) {
    return Error{ErrorCode::unavailable,
                 concat("profiling counts on a GPU; this service works for the sku ",
                        site_.profile.id, " without one")};
  }
  KW_ASSIGN(StoredRecord stored, find_record(answers_, problem));
  const auto gpu = GpuLock::acquire(
      site_.identity.uuid, [this](std::string_view line) { site_.say(LogLevel::info, line); });
  if (!gpu) return gpu.error();
  KW_ASSIGN(Measuring * where, counting());
  const auto start = std::chrono::steady_clock::now();
  // One set of buffers is enough: the L2 is cleaned, not passed by a rotation through many.
  DeviceRunnerOptions options;
  options.policy.l2 = L2State::warm;
  KW_ASSIGN(const std::unique_ptr<Runner> runner, where->open(problem, options));
  Profiled profiled;
  profiled.record = stored.record;
  for (const RankedConfiguration* ranked : profiled_candidates(stored.record, more)) {
    if (const Result<void> counted = count(*runner, problem, *ranked, profiled.record); counted) {
      ++profiled.counted;
    } else if (profiled.counted == 0 || counted.error().code == ErrorCode::unavailable) {
      return Error{counted.error().code, concat(problem.text(), ": ", ranked->choice.id(), ": ",
                                                counted.error().message)};
    } else {
      profiled.notes.push_back(
          concat(ranked->choice.id(), " was not counted: ", counted.error().message));
    }
  }
  profiled.seconds = seconds_since(start);
  stored.record = profiled.record;
  KW_TRY(keep(stored));
  return profiled;
}

Result<void> Profiler::keep(const StoredRecord& stored) const {
  KW_TRY(site_.cache.replace_record(stored.file, stored.record));
  return {};
}

}  // namespace kernwright
