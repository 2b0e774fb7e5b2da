#include "service/tune/tuning_desk.h"

#include <chrono>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "service/tune/stoppable_runner.h"
#include "service/tune/tuning_history.h"
#include "support/hash.h"
#include "support/processes/process_exit.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/measure/device_runner.h"
#include "tuner/measure/opening.h"
#include "tuner/session/gpu_lock.h"
#include "tuner/session/predict_record.h"
#include "tuner/session/tuning_session.h"

namespace kernwright {

namespace {

/// Sets the flag of the tuning that runs, for as long as it does.
class StopFlag {
 public:
  StopFlag(const std::atomic<bool>*& place, const std::atomic<bool>* flag) : place_(place) {
    place_ = flag;
  }
  StopFlag(const StopFlag&) = delete;
  StopFlag& operator=(const StopFlag&) = delete;
  ~StopFlag() { place_ = nullptr; }

 private:
  const std::atomic<bool>*& place_;
};

}  // namespace

TuningDesk::TuningDesk(const Site& site, Builder& builder, const AnswerFinder& answers,
                       Options options)
    : site_(site), builder_(builder), answers_(answers), options_(std::move(options)) {}

Result<TuningInput> TuningDesk::input(const BoundProblem& problem) const {
  KW_TRY(check_policy(site_.policy, problem.operation()));
  KW_TRY(builder_.load_compiler());
  return TuningInput{.catalog = *site_.catalog,
                     .problem = problem,
                     .profile = site_.profile,
                     .pool = builder_.pool(),
                     .key = site_.key(problem),
                     .environment = answers_.environment()};
}

Result<Measuring*> TuningDesk::measuring() {
  if (measuring_) {
    if (!measuring_->lost()) return measuring_.get();
    return Error{ErrorCode::device,
                 concat("GPU ", options_.device, " was lost to an earlier failure")};
  }
  MeasuringContext context{
      .catalog = *site_.catalog,
      .template_dirs = options_.template_dirs,
      .profile = site_.profile,
      .identity = site_.identity,
      .pool = builder_.pool(),
      .cache_root = site_.cache.root(),
      .log = [this](std::string_view line) { site_.say(LogLevel::warning, line); },
      .inform = [this](std::string_view line) { site_.say(LogLevel::info, line); },
      .stopped = [this] { return stopped(); }};
  KW_ASSIGN(std::unique_ptr<Measuring> opened,
            options_.in_process ? measure_in_process(std::move(context), options_.open_device,
                                                     options_.make_data_ops)
                                : measure_in_worker(std::move(context), options_.worker));
  measuring_ = std::move(opened);
  return measuring_.get();
}

Result<void> TuningDesk::may_tune(const std::string& problem) const {
  if (site_.has_device) return builder_.seal().admit(problem, "to be tuned");
  return Error{ErrorCode::unavailable,
               concat("tuning measures on a GPU; this service works for the sku ", site_.profile.id,
                      " without one")};
}

Result<GpuLock> TuningDesk::lock_gpu() const {
  return GpuLock::acquire(
      site_.identity.uuid, [this](std::string_view line) { site_.say(LogLevel::info, line); },
      [this] { return stopped(); });
}

Result<void> TuningDesk::check_stopped() {
  if (!stopped()) return {};
  if (!options_.in_process) measuring_.reset();
  return Error{ErrorCode::unavailable, "tuning was stopped"};
}

Result<std::unique_ptr<Runner>> TuningDesk::open(const BoundProblem& problem, std::uint64_t seed) {
  KW_ASSIGN(Measuring * where, measuring());
  DeviceRunnerOptions options;
  options.policy = site_.policy;
  options.seed = seed;
  return where->open(problem, options);
}

Result<TuningResult> TuningDesk::tune(const BoundProblem& problem, TuningOptions options,
                                      const std::atomic<bool>* stop) {
  KW_TRY(may_tune(problem.text()));
  KW_ASSIGN(TuningInput subject, input(problem));
  subject.device_uuid = site_.identity.uuid;

  const BeforeExit tunes;
  if (!tunes) return Error{ErrorCode::unavailable, "nothing is tuned while the process exits"};
  const MutexLock lock(mutex_);
  const StopFlag of_this(stop_, stop);
  KW_ASSIGN(const GpuLock gpu, lock_gpu());
  Result<TuningResult> result = search(subject, std::move(options));
  KW_TRY(check_stopped());
  if (result) store(*result);
  return result;
}

Result<TunedFamily> TuningDesk::tune_family(const RangedProblem& family, FamilyOptions options,
                                            const std::atomic<bool>* stop) {
  if (!site_.has_device) {
    return Error{ErrorCode::unavailable,
                 concat("a range of sizes is measured on a GPU; for the sku ", site_.profile.id,
                        " without one prewarm predicts and compiles its kernels")};
  }
  KW_TRY(may_tune(family.text()));
  KW_ASSIGN(const TuningInput subject, input(family.last()));
  FamilyInput of_family{.catalog = *site_.catalog,
                        .family = family,
                        .profile = site_.profile,
                        .pool = builder_.pool(),
                        .key = site_.key(family.text()),
                        .environment = answers_.environment(),
                        .device_uuid = site_.identity.uuid,
                        .decisions = site_.cache.decisions(site_.key(family.text()))};

  const BeforeExit tunes;
  if (!tunes) return Error{ErrorCode::unavailable, "nothing is tuned while the process exits"};
  const MutexLock lock(mutex_);
  const StopFlag of_this(stop_, stop);
  KW_ASSIGN(const GpuLock gpu, lock_gpu());
  const std::uint64_t seed = options.random_seed;
  const std::function<double()> clock = options.clock_seconds;
  std::unique_ptr<Runner> opened;
  const FamilySteps steps{
      .open = [&](const BoundProblem& problem)
                  KW_REQUIRES(mutex_) -> Result<std::unique_ptr<Runner>> {
        opened.reset();
        KW_ASSIGN(opened, open(problem, seed));
        return std::unique_ptr<Runner>(
            std::make_unique<StoppableRunner>(*opened, [this] { return stopped(); }));
      },
      .tune = [&](const BoundProblem& problem, double seconds)
                  KW_REQUIRES(mutex_) -> Result<TuningRecord> {
        opened.reset();
        KW_ASSIGN(TuningInput of_size, input(problem));
        of_size.device_uuid = site_.identity.uuid;
        KW_ASSIGN(TuningResult result, search(of_size, {.budget = {.seconds = seconds},
                                                        .random_seed = seed,
                                                        .clock_seconds = clock}));
        store(result);
        return std::move(result.record);
      }};
  Result<FamilyRecord> record = kernwright::tune_family(of_family, steps, std::move(options));
  opened.reset();
  KW_TRY(check_stopped());
  KW_TRY(record);
  TunedFamily tuned{.record = *std::move(record)};
  Result<std::filesystem::path> put = site_.cache.put_family(tuned.record);
  if (put) {
    tuned.file = *std::move(put);
  } else {
    tuned.unstored = put.error().message;
    site_.say(LogLevel::warning, concat("record not stored: ", tuned.unstored));
  }
  return tuned;
}

std::vector<Build> TuningDesk::compile_opening(const BoundProblem& problem) {
  std::vector<Build> builds;
  for (CompileRequest& request : opening_requests(problem, *site_.catalog, site_.profile.sm_arch)) {
    builds.push_back(builder_.pool().submit(std::move(request)));
  }
  return builds;
}

void TuningDesk::compile_ahead(std::vector<BoundProblem> next) {
  if (next.empty() || !site_.has_device || builder_.seal().refuses()) return;
  auto ahead = std::make_unique<Ahead>();
  ahead->problems = std::move(next);
  Result<TuningInput> subject = input(ahead->problems.front());
  if (!subject) return;  // as `tune` will say
  for (const BoundProblem& problem : ahead->problems) {
    ahead->of_opening.push_back(compile_opening(problem));
  }
  static_cast<void>(ahead->first.emplace(*std::move(subject)).compile_first_choices());
  const MutexLock lock(ahead_mutex_);
  ahead_.swap(ahead);
}

bool TuningDesk::stopped() const { return exiting() || (stop_ != nullptr && *stop_); }

Result<TuningResult> TuningDesk::search(const TuningInput& subject, TuningOptions options) {
  const BoundProblem& problem = subject.problem;
  const auto opening = std::chrono::steady_clock::now();
  const std::vector<Build> of_opening = compile_opening(problem);  // whatever opens asks again
  TuningSession session(subject);
  KW_TRY(session.compile_first_choices());
  KW_ASSIGN(const std::unique_ptr<Runner> runner, open(problem, options.random_seed));
  options.budget.opening_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - opening).count();

  const TuningHistory history(
      site_.cache, subject.key, subject.environment,
      [this](std::string_view name) { return answers_.template_digest(name); });
  EarlierTunings earlier = history.of(problem, answers_.look_up(problem));
  earlier.failed = [&](const Trial& trial) {
    if (auto kept = history.keep(trial); !kept) {
      site_.say(LogLevel::warning, concat("failure not kept: ", kept.error().message));
    }
  };
  if (options.trial_log.empty()) {
    options.trial_log = site_.cache.log(subject.key);
    // Removes the log of the search before, so that the cache does not grow with every tuning of a
    // problem.
    std::error_code error;
    std::filesystem::remove(options.trial_log, error);
  }
  StoppableRunner stoppable(*runner, [this] { return stopped(); });
  return session.run(stoppable, std::move(options), std::move(earlier));
}

Result<TuningResult> TuningDesk::predict(const BoundProblem& problem, const TuningBudget& budget) {
  KW_TRY(builder_.seal().admit(problem.text(), "to be predicted"));
  KW_ASSIGN(const TuningInput subject, input(problem));
  KW_ASSIGN(TuningResult result,
            predict_record(subject, budget, answers_.look_up(problem).decisions.bans()));
  store(result);
  return result;
}

void TuningDesk::store(TuningResult& result) const {
  if (std::string failure = builder_.take_failure(); !failure.empty()) {
    result.notes.push_back(concat("artifact not stored: ", failure));
  }
  const TimeShares& shares = result.shares;
  const TrialTable trials =
      trial_table(result.trials, shares.wall_seconds - shares.finals_seconds, shares.wall_seconds);
  const bool measured = result.record.grade == RecordGrade::measured;
  if (auto put = site_.cache.put_record(result.record, measured ? &trials : nullptr); !put) {
    result.unstored = put.error().message;
  } else if (result.file = *std::move(put); !site_.cache.artifact(result.record.winner.artifact)) {
    result.unstored = "the winner's artifact could not be written";
  }
  if (!result.unstored.empty()) {
    site_.say(LogLevel::warning, concat("record not stored: ", result.unstored));
  }
}

Result<UnfusedComparison> TuningDesk::compare_unfused(const UnfusedMatch& match,
                                                      std::uint64_t seed) {
  const MutexLock lock(mutex_);
  const auto gpu = GpuLock::acquire(
      site_.identity.uuid, [this](std::string_view line) { site_.say(LogLevel::info, line); });
  if (!gpu) return gpu.error();
  KW_ASSIGN(const auto device, options_.open_device(options_.device));
  KW_ASSIGN(const auto data_ops, options_.make_data_ops(*device, builder_.pool()));
  return kernwright::compare_unfused(*device, *data_ops, *site_.catalog, builder_.pool(), match,
                                     site_.policy.l2, seed);
}

}  // namespace kernwright
