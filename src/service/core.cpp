#include "service/core.h"

#include <condition_variable>
#include <future>
#include <optional>
#include <tbb/concurrent_unordered_map.h>
#include <utility>

#include "compile/render.h"
#include "service/guarded.h"
#include "service/tuning_history.h"
#include "support/hash.h"
#include "support/text.h"
#include "support/version.h"
#include "tuner/cost_model.h"
#include "tuner/device_runner.h"
#include "tuner/gpu_lock.h"

namespace kernwright {
namespace {

// How many candidates a prediction compiles: with a GPU one that compiles is enough, since tuning
// can follow; without one the best of the ranking are checked for spills (see predict_record).
constexpr int kPredictCompilesAtLaunch = 1;

struct ProblemHash {
  std::size_t operator()(const Problem& problem) const noexcept {
    const std::hash<std::string_view> text;
    std::size_t hash = text(problem.operation());
    const auto mix = [&hash](std::size_t value) {
      hash ^= value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
    };
    for (const auto& [name, value] : problem.dims()) {
      mix(text(name));
      mix(static_cast<std::size_t>(value));
    }
    for (const auto& [name, value] : problem.flags()) {
      mix(text(name));
      mix(text(value));
    }
    return hash;
  }
};

std::string digest_of_template(const KernelTemplate& kernel_template, const Catalog& catalog) {
  Hasher hasher;
  hasher.add("manifest", kernel_template.manifest).add("source", kernel_template.source);
  for (const DeviceHeader& header : catalog.headers()) hasher.add(header.name, header.text);
  return hasher.finish().hex();
}

KernelSummary summarize(const TuningRecord& record, Match match, MissReason reason,
                        std::string artifact) {
  const Measurement measured = final_times(record.winner, record.rounds).in_turn;
  return {.problem = record.key.problem,
          .kernel_template = record.winner.kernel_template,
          .configuration = record.winner.configuration.text(),
          .artifact = std::move(artifact),
          .match = match,
          .reason = reason,
          .measured_us = measured.samples_us.empty() ? 0 : measured.median_us(),
          .predicted_us = record.winner.predicted_us,
          .roofline_us = record.roofline_us};
}

}  // namespace

// Problem as the caller wrote it, and as normalised, to the kernel served now. Found without a
// lock: nodes are never erased, and a new winner is swapped in place.
struct ServiceCore::HotMap {
  struct Slot {
    std::atomic<const LoadedKernel*> kernel{nullptr};
    Slot() = default;
    explicit Slot(const LoadedKernel* k) : kernel(k) {}
    Slot(const Slot& other) : kernel(other.kernel.load()) {}
  };
  tbb::concurrent_unordered_map<Problem, Slot, ProblemHash> slots;

  const LoadedKernel* find(const Problem& problem) const {
    const auto it = slots.find(problem);
    return it == slots.end() ? nullptr : it->second.kernel.load(std::memory_order_acquire);
  }
  void publish(const Problem& problem, const LoadedKernel* kernel) {
    slots.emplace(problem, Slot()).first->second.kernel.store(kernel, std::memory_order_release);
  }
};

// One lookup that several callers wait for.
struct ServiceCore::Flight {
  std::promise<Result<const LoadedKernel*>> promise;
  std::shared_future<Result<const LoadedKernel*>> future{promise.get_future().share()};
};

ServiceCore::ServiceCore(ServiceOptions options, Surroundings surroundings,
                         std::shared_ptr<const Catalog> catalog)
    : options_(std::move(options)),
      surroundings_(std::move(surroundings)),
      catalog_(std::move(catalog)),
      cache_(options_.cache.empty() ? default_cache_root() : std::filesystem::path(options_.cache),
             {options_.read_only_caches.begin(), options_.read_only_caches.end()}),
      pool_(std::make_unique<CompilePool>(std::shared_ptr<Compiler>(surroundings_.make_compiler()),
                                          CompilePoolOptions{.threads = options_.compile_threads})),
      hot_(std::make_unique<HotMap>()) {
  for (const KernelTemplate& kernel_template : catalog_->templates()) {
    template_digests_[kernel_template.name] = digest_of_template(kernel_template, *catalog_);
  }
}

ServiceCore::~ServiceCore() = default;

Result<std::shared_ptr<ServiceCore>> ServiceCore::open(ServiceOptions options,
                                                       Surroundings surroundings) {
  Result<std::shared_ptr<const Catalog>> catalog =
      Catalog::load({options.template_dirs.begin(), options.template_dirs.end()});
  if (!catalog) return std::move(catalog).error();

  DeviceProfile profile;
  DeviceIdentity identity;
  const bool has_device = options.sku.empty();
  if (has_device) {
    Result<CudaDeviceInfo> info = surroundings.describe_device(options.device);
    if (!info) {
      return Error{info.error().code, concat("no GPU to work on (", info.error().message,
                                             "); name a sku, such as h200, to work without one")};
    }
    profile = info->profile;
    identity = info->identity;
  } else {
    Result<DeviceProfile> found = find_profile(options.sku);
    if (!found) return Error{ErrorCode::invalid_argument, std::move(found).error().message};
    profile = *std::move(found);
  }

  std::shared_ptr<ServiceCore> core(
      new ServiceCore(std::move(options), std::move(surroundings), *std::move(catalog)));
  core->profile_ = std::move(profile);
  core->identity_ = std::move(identity);
  core->has_device_ = has_device;
  return core;
}

void ServiceCore::log(LogLevel level, std::string_view message) const {
  if (options_.log) options_.log(level, message);
}

Result<ServiceCore::Named> ServiceCore::name(const Problem& problem) const {
  Result<const Operation*> found = catalog_->operation(problem.operation());
  if (!found) return Error{ErrorCode::invalid_argument, std::move(found).error().message};
  if (Result<void> measurable = check_policy(policy(), **found); !measurable) {
    return measurable.error();
  }
  Result<Problem> normalized = (*found)->normalize(problem);
  if (!normalized) return std::move(normalized).error();
  return Named{*found, *std::move(normalized)};
}

Result<std::string> ServiceCore::load_compiler() {
  Result<std::string> identity = pool_->compiler().identity();
  if (!identity) return identity;
  const std::lock_guard lock(compiler_mutex_);
  compiler_identity_ = *identity;
  return identity;
}

RecordKey ServiceCore::key(const Problem& normalized) const {
  return {.problem = normalized.text(),
          .target = concat("sm_", profile_.sm_arch),
          .sku = profile_.id,
          .policy = policy()};
}

std::string ServiceCore::template_digest(std::string_view kernel_template) const {
  const auto it = template_digests_.find(kernel_template);
  return it == template_digests_.end() ? std::string() : it->second;
}

RecordEnvironment ServiceCore::environment() const {
  const std::lock_guard lock(compiler_mutex_);
  return {.template_digest = {},
          .compiler = compiler_identity_,
          .driver = identity_.driver_version,
          .kernwright = std::string(kernwright_version())};
}

std::vector<GradedRecord> ServiceCore::records(const Problem& normalized,
                                               MissReason& reason) const {
  const RecordEnvironment now = environment();
  return cache_.lookup(
      key(normalized),
      {.compiler = now.compiler, .driver = now.driver, .kernwright = now.kernwright},
      [this](std::string_view name) { return template_digest(name); }, reason);
}

Result<Kernel> ServiceCore::get_best_kernel(const Problem& problem) {
  if (const LoadedKernel* hot = hot_->find(problem)) return hot->handle();

  Result<Named> named = name(problem);
  if (!named) return std::move(named).error();

  const std::string text = named->problem.text();
  std::shared_ptr<Flight> flight;
  bool leads = false;
  {
    const std::lock_guard lock(flights_mutex_);
    std::shared_ptr<Flight>& slot = flights_[text];
    if (!slot) {
      slot = std::make_shared<Flight>();
      leads = true;
    }
    flight = slot;
  }
  if (leads) {
    // Another leader may have landed between our look at the hot map and now.
    const LoadedKernel* landed = hot_->find(named->problem);
    Result<const LoadedKernel*> resolved = landed
                                               ? Result<const LoadedKernel*>(landed)
                                               : guarded([&] { return resolve(named->problem); });
    if (resolved) hot_->publish(named->problem, *resolved);
    {
      const std::lock_guard lock(flights_mutex_);
      flights_.erase(text);
    }
    flight->promise.set_value(std::move(resolved));
  }
  const Result<const LoadedKernel*>& result = flight->future.get();
  if (!result) return result.error();
  hot_->publish(problem, *result);
  return (*result)->handle();
}

Result<const LoadedKernel*> ServiceCore::resolve(const Problem& normalized) {
  MissReason reason = MissReason::none;
  const std::vector<GradedRecord> graded = records(normalized, reason);
  for (const GradedRecord& found : graded) {
    if (found.match == Match::predicted && options_.on_miss == MissPolicy::tune_now) continue;
    Result<const LoadedKernel*> served = serve(found.record, found.match, found.reason);
    if (served) return served;
    log(LogLevel::warning, concat("a record of ", found.record.key.problem,
                                  " is passed over: ", served.error().message));
  }
  switch (options_.on_miss) {
    case MissPolicy::fail:
      return Error{ErrorCode::not_found,
                   concat("no record for ", key(normalized).text(), " (", to_string(reason),
                          ") and the miss policy is fail")};
    case MissPolicy::tune_now: {
      TuningOptions tuning;
      tuning.budget.seconds = options_.tune_seconds;
      Result<TuningResult> tuned = tune(normalized, std::move(tuning));
      if (!tuned) return std::move(tuned).error();
      return hot_->find(normalized);
    }
    case MissPolicy::predict:
      break;
  }
  Result<TuningResult> predicted = predict(normalized, kPredictCompilesAtLaunch);
  if (!predicted) return std::move(predicted).error();
  return serve(predicted->record, Match::predicted, reason);
}

Result<Candidate> ServiceCore::candidate_of(const TuningRecord& record, MissReason& reason) const {
  reason = MissReason::template_missing;
  Result<const KernelTemplate*> found = catalog_->kernel_template(record.winner.kernel_template);
  if (!found) return std::move(found).error();
  Result<Problem> problem = Problem::parse(record.key.problem);
  if (!problem) return std::move(problem).error();
  Result<Named> named = name(*problem);
  if (!named) return std::move(named).error();
  reason = MissReason::rule_violated;
  if (Result<void> fits = applies(**found, *named->operation, named->problem, profile_); !fits) {
    return std::move(fits).error();
  }
  return make_candidate(**found, *named->operation, named->problem, record.winner.configuration,
                        profile_);
}

Result<const LoadedKernel*> ServiceCore::serve(const TuningRecord& record, Match match,
                                               MissReason reason) {
  MissReason refused = MissReason::none;
  Result<Candidate> candidate = candidate_of(record, refused);
  if (!candidate) return std::move(candidate).error();

  // The record's own bits, unless they belong to another text of the template: those may take other
  // arguments than the plan made from today's manifest.
  Artifact artifact;
  if (reason != MissReason::template_changed) {
    Lookup<CompiledKernel> stored = cache_.artifact(record.winner.artifact);
    if (stored) {
      artifact = {.digest = record.winner.artifact,
                  .kernel = std::make_shared<const CompiledKernel>(*std::move(stored.value)),
                  .cached = true};
    }
  }
  if (!artifact.kernel) {
    Result<Artifact> compiled = compile(*candidate);
    if (!compiled) return std::move(compiled).error();
    artifact = *std::move(compiled);
  }

  std::unique_ptr<Launcher> launcher;
  Error why_not{ErrorCode::unavailable,
                concat("this service works for the sku ", profile_.id, " without a GPU")};
  if (has_device_) {
    Result<std::unique_ptr<Launcher>> loaded =
        surroundings_.load_launcher(artifact.kernel->bits, candidate->plan, options_.device);
    if (!loaded) return std::move(loaded).error();
    launcher = *std::move(loaded);
  }
  return keep(std::make_shared<LoadedKernel>(
      summarize(record, match, reason, std::move(artifact.digest)), std::move(candidate->plan),
      std::move(launcher), std::move(why_not)));
}

const LoadedKernel* ServiceCore::keep(std::shared_ptr<LoadedKernel> kernel) {
  const LoadedKernel* raw = kernel.get();
  const std::lock_guard lock(kept_mutex_);
  kept_.push_back(std::move(kernel));
  return raw;
}

Result<Candidate> ServiceCore::candidate(const Problem& problem, std::string_view kernel_template,
                                         const ParameterValues& parameters) const {
  Result<Named> named = name(problem);
  if (!named) return std::move(named).error();
  Result<const KernelTemplate*> found = catalog_->kernel_template(kernel_template);
  if (!found) return std::move(found).error();
  if ((*found)->operation != named->operation->name) {
    return Error{ErrorCode::invalid_argument,
                 concat("template ", kernel_template, " implements ", (*found)->operation,
                        ", the problem is of ", named->operation->name)};
  }
  if (Result<void> fits = applies(**found, *named->operation, named->problem, profile_); !fits) {
    return std::move(fits).error();
  }
  std::vector<std::pair<std::string, std::int64_t>> values =
      (*found)->default_configuration.values();
  for (const auto& [name, value] : parameters) {
    bool known = false;
    for (auto& entry : values) {
      if (entry.first != name) continue;
      entry.second = value;
      known = true;
    }
    if (!known) {
      return Error{ErrorCode::invalid_argument,
                   concat("template ", kernel_template, " has no parameter ", name, "; it has ",
                          (*found)->default_configuration.text())};
    }
  }
  return make_candidate(**found, *named->operation, named->problem,
                        Configuration(std::move(values)), profile_);
}

Result<Artifact> ServiceCore::compile(const Candidate& candidate) {
  const CompileRequest request = render(candidate, *catalog_, profile_.sm_arch);
  Result<std::string> compiler = load_compiler();
  if (!compiler) return std::move(compiler).error();
  std::string digest = request.digest(*compiler).hex();
  if (Lookup<CompiledKernel> stored = cache_.artifact(digest)) {
    return Artifact{.digest = std::move(digest),
                    .kernel = std::make_shared<const CompiledKernel>(*std::move(stored.value)),
                    .cached = true};
  }
  CompileResult compiled = pool_->submit(request).get();
  if (!compiled) return std::move(compiled).error();
  if (Result<void> put = cache_.put_artifact(digest, **compiled); !put) {
    log(LogLevel::warning, concat("artifact not stored: ", put.error().message));
  }
  return Artifact{.digest = std::move(digest), .kernel = *std::move(compiled), .cached = false};
}

ServiceCore::Coverage ServiceCore::coverage(const Problem& normalized) const {
  MissReason reason = MissReason::none;
  Coverage missing;
  for (const GradedRecord& found : records(normalized, reason)) {
    MissReason refused = MissReason::none;
    if (!candidate_of(found.record, refused)) {
      missing.reason = refused;
    } else if (found.reason == MissReason::template_changed) {
      missing.reason = found.reason;  // its bits would have to be compiled again
    } else if (Lookup<CompiledKernel> bits = cache_.artifact(found.record.winner.artifact); !bits) {
      missing.reason = MissReason::artifact_missing;
    } else {
      return {.match = found.match, .reason = found.reason};
    }
    reason = missing.reason;
  }
  missing.reason = reason;
  return missing;
}

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
      .pool = *pool_,
      .policy = policy(),
      .cache_root = cache_.root(),
      .log = [this](std::string_view line) { log(LogLevel::warning, line); },
      .inform = [this](std::string_view line) { log(LogLevel::info, line); }};
  auto opened = options_.measure_in_process
                    ? measure_in_process(std::move(context), surroundings_.open_device,
                                         surroundings_.make_data_ops)
                    : measure_in_worker(std::move(context), options_.worker);
  if (!opened) return std::move(opened).error();
  measuring_ = *std::move(opened);
  return measuring_.get();
}

Result<TuningResult> ServiceCore::tune(const Problem& problem, TuningOptions options) {
  if (!has_device_) {
    return Error{ErrorCode::unavailable,
                 concat("tuning measures on a GPU; this service works for the sku ", profile_.id,
                        " without one")};
  }
  Result<Named> named = name(problem);
  if (!named) return std::move(named).error();

  Result<std::string> compiler = load_compiler();
  if (!compiler) return std::move(compiler).error();

  const std::lock_guard lock(measuring_mutex_);
  const auto gpu = GpuLock::acquire(identity_.uuid,
                                    [this](std::string_view line) { log(LogLevel::info, line); });
  if (!gpu) return gpu.error();
  Result<Measuring*> where = measuring();
  if (!where) return std::move(where).error();
  const RecordKey record_key = key(named->problem);
  DeviceRunnerOptions runner_options;
  runner_options.policy = record_key.policy;
  runner_options.seed = options.seed;
  Result<std::unique_ptr<Runner>> runner =
      (*where)->open(*named->operation, named->problem, runner_options);
  if (!runner) return std::move(runner).error();

  const TuningHistory history(cache_, record_key, environment(),
                              [this](std::string_view name) { return template_digest(name); });
  MissReason ignored = MissReason::none;
  history.add_to(options, *named->operation, records(named->problem, ignored));
  options.failed = [&](const Trial& trial) {
    if (auto kept = history.keep(trial); !kept) {
      log(LogLevel::warning, concat("failure not kept: ", kept.error().message));
    }
  };
  if (options.trial_log.empty()) {
    options.trial_log = cache_.root() / "trials" / named->operation->name /
                        (digest_of(record_key.text()).hex().substr(0, 16) + ".jsonl");
  }
  TuningSession session(*catalog_, *named->operation, named->problem, profile_, record_key,
                        environment(), *pool_, **runner, cache_.artifacts(), std::move(options));
  Result<TuningResult> result = session.run();
  if (!result) return std::move(result).error();

  TuningRecord& record = result->record;
  record.environment.template_digest = template_digest(record.winner.kernel_template);
  record.device_name = profile_.name;
  record.device_uuid = identity_.uuid;
  if (auto put = cache_.put_record(record); !put) {
    log(LogLevel::warning, concat("record not stored: ", put.error().message));
  }
  Result<const LoadedKernel*> loaded = serve(record, Match::exact, MissReason::none);
  if (!loaded) return std::move(loaded).error();
  hot_->publish(named->problem, *loaded);
  hot_->publish(problem, *loaded);
  return result;
}

Result<TuningResult> ServiceCore::predict(const Problem& problem, int compile_count) {
  Result<Named> named = name(problem);
  if (!named) return std::move(named).error();
  Result<std::string> compiler = load_compiler();
  if (!compiler) return std::move(compiler).error();
  Result<TuningResult> result =
      predict_record(*catalog_, *named->operation, named->problem, profile_, key(named->problem),
                     environment(), *pool_, cache_.artifacts(), compile_count);
  if (!result) return std::move(result).error();
  TuningRecord& record = result->record;
  record.environment.template_digest = template_digest(record.winner.kernel_template);
  record.device_name = profile_.name;
  if (auto put = cache_.put_record(record); !put) {
    log(LogLevel::warning, concat("record not stored: ", put.error().message));
  }
  return result;
}

}  // namespace kernwright
