// What of ServiceCore makes records: by measuring, or by prediction.

#include <chrono>
#include <optional>
#include <utility>

#include "service/serve/core.h"
#include "service/serve/guarded.h"
#include "service/tune/stoppable_runner.h"
#include "service/tune/tuning_history.h"
#include "support/hash.h"
#include "support/processes/threads.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/measure/device_runner.h"
#include "tuner/measure/opening.h"
#include "tuner/session/gpu_lock.h"
#include "tuner/session/predict_record.h"
#include "tuner/session/tuning_session.h"

namespace kernwright {

Result<Measuring*> ServiceCore::measuring() {
  if (measuring_) {
    if (!measuring_->lost()) return measuring_.get();
    return Error{ErrorCode::device,
                 concat("GPU ", options_.device, " was lost to an earlier failure")};
  }
  MeasuringContext context{
      .catalog = *catalog_,
      .template_dirs = {options_.template_dirs.begin(), options_.template_dirs.end()},
      .profile = profile_,
      .identity = identity_,
      .pool = pool(),
      .cache_root = cache_.root(),
      .log = [this](std::string_view line) { log(LogLevel::warning, line); },
      .inform = [this](std::string_view line) { log(LogLevel::info, line); }};
  KW_ASSIGN(measuring_, options_.measure_in_process
                            ? measure_in_process(std::move(context), surroundings_.open_device,
                                                 surroundings_.make_data_ops)
                            : measure_in_worker(std::move(context), options_.worker));
  return measuring_.get();
}

void ServiceCore::tune_in_background() {
  background_ = std::make_unique<BackgroundTuner>(
      options_.background_seconds, [this](const Problem& problem, const std::atomic<bool>& stop) {
        TuningOptions options;
        options.budget.seconds = options_.tune_seconds;
        const Result<TuningResult> tuned =
            guarded([&] { return tune(problem, std::move(options), &stop); });
        if (tuned) return tuned->shares.wall_seconds;
        if (!stop) log(LogLevel::warning, concat("not tuned: ", tuned.error().message));
        // What failed had the GPU too, for at most the budget.
        return options_.tune_seconds;
      });
}

void ServiceCore::ask_background(const Problem& normalized) {
  if (Result<void> asked = background_->ask(normalized); !asked) {
    log(LogLevel::warning,
        concat(normalized.text(), " is not tuned in the background: ", asked.error().message));
  }
}

Result<TuningResult> ServiceCore::tune(const Problem& problem, TuningOptions options,
                                       const std::atomic<bool>* stop) {
  KW_TRY(check_not_forked());
  if (!has_device_) {
    return Error{ErrorCode::unavailable,
                 concat("tuning measures on a GPU; this service works for the sku ", profile_.id,
                        " without one")};
  }
  KW_ASSIGN(Named named, name(problem));

  Result<std::string> compiler = load_compiler();
  if (!compiler) return std::move(compiler).error();

  const std::lock_guard lock(measuring_mutex_);
  const auto gpu = GpuLock::acquire(
      identity_.uuid, [this](std::string_view line) { log(LogLevel::info, line); }, stop);
  if (!gpu) return gpu.error();
  const auto opening = std::chrono::steady_clock::now();
  std::vector<std::shared_future<CompileResult>> compiling;
  for (CompileRequest& request :
       opening_requests(*named.operation, named.problem, *catalog_, profile_.sm_arch)) {
    compiling.push_back(pool().submit(std::move(request)));
  }
  const RecordKey record_key = key(named.problem);
  TuningSession session(*catalog_, *named.operation, named.problem, profile_, record_key,
                        environment(), pool(), cache_.artifacts());
  KW_TRY(session.compile_first_choices());
  KW_ASSIGN(Measuring * where, measuring());
  DeviceRunnerOptions runner_options;
  runner_options.policy = record_key.policy;
  runner_options.seed = options.random_seed;
  KW_ASSIGN(std::unique_ptr<Runner> runner,
            where->open(*named.operation, named.problem, runner_options));
  options.budget.opening_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - opening).count();

  const TuningHistory history(cache_, record_key, environment(),
                              [this](std::string_view name) { return template_digest(name); });
  Answers known = look_up(named.problem);
  history.add_to(options, *named.operation, known);
  options.failed = [&](const Trial& trial) {
    if (auto kept = history.keep(trial); !kept) {
      log(LogLevel::warning, concat("failure not kept: ", kept.error().message));
    }
  };
  if (options.trial_log.empty()) {
    options.trial_log = cache_.root() / "trials" / named.operation->name /
                        (digest_of(record_key.text()).hex().substr(0, 16) + ".jsonl");
  }
  std::optional<StoppableRunner> stoppable;
  if (stop != nullptr) stoppable.emplace(*runner, *stop);
  Runner& runs = stoppable ? *stoppable : *runner;
  Result<TuningResult> result = session.run(runs, std::move(options));
  if (!result) return std::move(result).error();

  if (stop != nullptr && *stop) return Error{ErrorCode::unavailable, "tuning was stopped"};

  TuningRecord& record = result->record;
  record.environment.template_digest = template_digest(record.winner.choice.kernel_template);
  record.device_name = profile_.name;
  record.device_uuid = identity_.uuid;
  store(*result);
  KW_ASSIGN(const LoadedKernel* loaded,
            serve(named, head_of(record), Match::exact, MissReason::none));
  hot_.publish(named.problem, loaded);
  return result;
}

Result<UnfusedComparison> ServiceCore::compare_unfused(const UnfusedMatch& match,
                                                       std::uint64_t seed) {
  const std::lock_guard lock(measuring_mutex_);
  const auto gpu = GpuLock::acquire(identity_.uuid,
                                    [this](std::string_view line) { log(LogLevel::info, line); });
  if (!gpu) return gpu.error();
  KW_ASSIGN(const auto device, surroundings_.open_device(options_.device));
  KW_ASSIGN(const auto data_ops, surroundings_.make_data_ops(*device, pool()));
  return kernwright::compare_unfused(*device, *data_ops, *catalog_, pool(), match, options_.l2,
                                     seed);
}

void ServiceCore::store(TuningResult& result) const {
  if (auto put = cache_.put_record(result.record); !put) {
    result.unstored = put.error().message;
  } else if (!cache_.artifact(result.record.winner.artifact)) {
    result.unstored = "the winner's artifact could not be written";
  }
  if (!result.unstored.empty()) {
    log(LogLevel::warning, concat("record not stored: ", result.unstored));
  }
}

Result<TuningResult> ServiceCore::predict(const Problem& problem, const TuningBudget& budget) {
  KW_ASSIGN(Named named, name(problem));
  Result<std::string> compiler = load_compiler();
  if (!compiler) return std::move(compiler).error();
  Result<TuningResult> result = predict_record(
      *catalog_, *named.operation, named.problem, profile_, key(named.problem), environment(),
      pool(), cache_.artifacts(), budget, look_up(named.problem).decisions.bans());
  if (!result) return std::move(result).error();
  TuningRecord& record = result->record;
  record.environment.template_digest = template_digest(record.winner.choice.kernel_template);
  record.device_name = profile_.name;
  store(*result);
  return result;
}

}  // namespace kernwright
