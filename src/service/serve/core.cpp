#include "service/serve/core.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "cache/entries/default_root.h"
#include "cache/entries/key_lock.h"
#include "cache/layers/bundle.h"
#include "cache/stores/lookup_log.h"
#include "launch/launch_once.h"
#include "service/serve/guarded.h"
#include "support/hash.h"
#include "support/processes/process_exit.h"
#include "support/text.h"
#include "support/try.h"
#include "support/utc.h"
#include "tuner/candidates/family_fit.h"
#include "tuner/cost/cost_model.h"
#include <kernwright/visible.h>

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

KernelSummary summarize(const Problem& normalized, const GradedRecord& record,
                        std::string artifact) {
  const RecordHead& head = record.head;
  return {.problem = normalized.text(),
          .kernel_template = head.winner.choice.kernel_template,
          .configuration = head.winner.choice.configuration.text(),
          .artifact = std::move(artifact),
          .match = record.match,
          .reason = record.reason,
          .measured_us = head.winner.measured_us,
          .predicted_us = head.winner.predicted_us,
          .roofline_us = head.roofline_us,
          .best_path = head.winner.best_path};
}

/// Returns the GPU that the options name, or their SKU.
Result<CudaDeviceInfo> find_device(const ServiceOptions& options,
                                   const Surroundings& surroundings) {
  if (!options.sku.empty()) {
    Result<DeviceProfile> found = find_profile(options.sku);
    if (!found) return Error{ErrorCode::invalid_argument, std::move(found).error().message};
    return CudaDeviceInfo{*std::move(found), {}};
  }
  Result<CudaDeviceInfo> info = surroundings.describe_device(options.device);
  if (info) return info;
  return Error{info.error().code, concat("no GPU to work on (", info.error().message,
                                         "); name a sku, such as h200, to work without one")};
}

/// The kernel of a family with the plan for one size. The rest is made when it is asked for.
class PlannedKernel final : public ServedKernel {
 public:
  template <typename... Arguments>
  PlannedKernel(std::shared_ptr<const Family::Kernel> of, const FreeSizes& sizes,
                Arguments&&... of_loaded)
      : ServedKernel(std::shared_ptr<const GradedRecord>(of, &of->record), KernelSummary{},
                     std::forward<Arguments>(of_loaded)...),
        of_(std::move(of)),
        sizes_(sizes) {}

  const KernelSummary& summary() const override {
    std::call_once(once_, [this] {
      const GradedRecord& record = of_->record;
      summary_ = summarize(of_->plan.problem(sizes_.values()), record, of_->artifact.digest);
      if (record.match != Match::predicted) return;
      const Result<Candidate> made = of_->plan.candidate(sizes_.values(), of_->profile);
      summary_.predicted_us = made ? predict_us(*made, of_->profile) : 0;
      summary_.roofline_us = made ? roofline_us(*made->problem, of_->profile) : 0;
    });
    return summary_;
  }

 private:
  std::shared_ptr<const Family::Kernel> of_;
  FreeSizes sizes_;
  mutable std::once_flag once_;
  mutable KernelSummary summary_;
};

}  // namespace

ServiceCore::ServiceCore(ServiceOptions options, Surroundings surroundings, Site site)
    : options_(std::move(options)),
      surroundings_(std::move(surroundings)),
      site_(std::move(site)),
      builder_(*site_.catalog, site_.profile.sm_arch, site_.cache,
               surroundings_.make_compiler(
                   options_.worker,
                   [this](std::string_view line) { site_.say(LogLevel::warning, line); }),
               {.threads = options_.compile_threads,
                .patience = surroundings_.patience,
                .log = options_.log}),
      answers_(site_, builder_),
      desk_(site_, builder_, answers_,
            {.template_dirs = {options_.template_dirs.begin(), options_.template_dirs.end()},
             .device = options_.device,
             .in_process = options_.measure_in_process,
             .worker = options_.worker,
             .open_device = surroundings_.open_device,
             .make_data_ops = surroundings_.make_data_ops}),
      shortlists_(site_, answers_, builder_),
      families_(*site_.catalog) {
  if (surroundings_.shortlists && options_.min_match >= Match::family && !tuning_seconds()) {
    shortlisting_ = std::make_unique<BackgroundQueue>(
        std::numeric_limits<double>::infinity(), available_cores(),
        [this](const Problem& problem, const std::atomic<bool>& stop) {
          const Result<void> made = guarded([&]() -> Result<void> {
            KW_ASSIGN(const BoundProblem bound, bind(problem));
            std::shared_ptr<const Family> family = shortlists_.make(
                bound, predicts(), options_.min_match,
                [this](const Offer& offer) { return load_ahead(offer); }, stop);
            if (family) families_.publish(std::move(family));
            return {};
          });
          if (!made) site_.say(LogLevel::warning, made.error().message);
          return 0.0;
        });
  }
  if (!site_.has_device || !may_compile() || options_.on_miss != MissPolicy::tune_in_background) {
    return;
  }
  background_ = std::make_unique<BackgroundQueue>(
      options_.background_seconds, 1,
      [this](const Problem& problem, const std::atomic<bool>& stop) {
        const Result<Tuned> tuned = guarded(
            [&] { return tune(problem, {.budget = {.seconds = options_.tune_seconds}}, &stop); });
        if (tuned) return tuned->shares.wall_seconds;
        if (!stop) site_.say(LogLevel::warning, concat("not tuned: ", tuned.error().message));
        // A tuning that failed had the GPU too, for at most the budget.
        return options_.tune_seconds;
      });
}

Result<std::shared_ptr<ServiceCore>> ServiceCore::open(ServiceOptions options,
                                                       Surroundings surroundings) {
  KW_TRY(check_not_forked());
  const BeforeExit opens;  // and so an exit of this thread waits for libraries that load
  if (!opens) return Error{ErrorCode::unavailable, "nothing is opened while the process exits"};
  if (options.log) {
    options.log = [log = std::move(options.log)](LogLevel level, std::string_view message) {
      log(level, visible_lines(message));
    };
  }
  KW_ASSIGN(std::shared_ptr<const Catalog> catalog,
            Catalog::load({options.template_dirs.begin(), options.template_dirs.end()},
                          {options.epilogues.begin(), options.epilogues.end()}));
  KW_ASSIGN(CudaDeviceInfo device, find_device(options, surroundings));
  std::vector<std::filesystem::path> further(options.read_only_caches.begin(),
                                             options.read_only_caches.end());
  for (const std::string& folder : options.signed_caches) {
    if (const auto checked = check_packaged_bundle(folder); checked) {
      further.emplace_back(folder);
    } else if (options.log) {
      options.log(LogLevel::warning, concat(folder, " is passed over: ", checked.error().message));
    }
  }
  Site site{.catalog = std::move(catalog),
            .profile = std::move(device.profile),
            .identity = std::move(device.identity),
            .has_device = options.sku.empty(),
            .policy = {.l2 = options.l2},
            .cache = TieredCache(
                options.cache.empty() ? default_cache_root() : std::filesystem::path(options.cache),
                further),
            .log = options.log};
  return std::shared_ptr<ServiceCore>(
      new ServiceCore(std::move(options), std::move(surroundings), std::move(site)),
      DeleteInThisProcess());
}

ServiceCore::~ServiceCore() {
  if (shortlisting_) shortlisting_->end();
  if (background_) background_->end();
  builder_.pool().stop();  // what is tuned may wait for a compile
}

Result<Kernel> ServiceCore::get_best_kernel(const Problem& problem, std::optional<void*> stream) {
  KW_ASSIGN(const BorrowedKernel borrowed, borrow_best_kernel(problem, stream));
  return Kernel(borrowed);
}

Result<BorrowedKernel> ServiceCore::borrow_best_kernel(const Problem& problem,
                                                       std::optional<void*> stream) {
  if (std::optional<BorrowedKernel> found = find_in_memory(problem)) return *std::move(found);
  const LoadedKernel* const hot = table_.find(problem);
  KW_TRY(check_not_forked());
  if (hot && hot->summary().match <= worst_in_memory()) {
    record(hot->summary());
    return hot->borrowed();
  }
  KW_ASSIGN(const BoundProblem bound, bind(problem));
  if (!hot) {
    // Another spelling may be known.
    if (std::optional<BorrowedKernel> sized = find_in_family(bound.problem())) {
      families_.learn(problem, bound);
      return *std::move(sized);
    }
  }
  const Result<const LoadedKernel*> found = find_or_make(problem, bound, stream);
  linger_while_exiting();
  if (!found) {
    record({.problem = bound.text(), .reason = MissReason::absent});
    return found.error();
  }
  record((*found)->summary());
  if (shortlisting_) {
    families_.learn(problem, bound);
    families_.learn(bound.problem(), bound);
  }
  return (*found)->borrowed();
}

std::optional<BorrowedKernel> ServiceCore::find_in_memory(const Problem& written) {
  const LoadedKernel* const hot = table_.find(written);
  if (!hot) return find_in_family(written);
  if (watched_.load(std::memory_order_relaxed)) return std::nullopt;
  return hot->borrowed();
}

std::optional<BorrowedKernel> ServiceCore::find_in_family(const Problem& written) {
  if (!shortlisting_ || background_ || watched_.load(std::memory_order_relaxed)) {
    return std::nullopt;
  }
  const std::optional<FamilyTable::Found> found = families_.find(written);
  if (!found) return std::nullopt;
  const auto kernel = FamilyTable::kernel(*found, [&]() -> std::shared_ptr<const SizedKernel> {
    const Family& family = *found->family;
    const std::optional<std::size_t> chosen = family.choose(found->sizes.values());
    if (!chosen) return nullptr;
    const GradedRecord& of = family.kernels[*chosen]->record;
    counters_.add(of.match, of.reason);
    return std::make_shared<const SizedKernel>(family, found->sizes, *chosen, weak_from_this());
  });
  if (kernel == nullptr) return std::nullopt;
  return kernel->borrowed();
}

std::shared_ptr<const LoadedKernel> SizedKernel::load() const {
  if (const std::shared_ptr<ServiceCore> service = service_.lock()) {
    return service->load_sized(*this);
  }
  return std::make_shared<const LoadedKernel>(
      KernelSummary(), std::make_shared<const CompactPlan>(ExecutionPlan()), nullptr,
      Error{ErrorCode::unavailable, "the service was closed before the kernel was first used"});
}

std::shared_ptr<const LoadedKernel> ServiceCore::load_sized(const SizedKernel& sized) {
  const Family& family = sized.family();
  const std::shared_ptr<const Family::Kernel>& of = sized.kernel();
  const std::span<const std::int64_t> sizes = sized.sizes().values();
  Loaded loaded = guarded([&]() -> Loaded {
    KW_TRY(check_not_forked());
    const Result<std::shared_ptr<const CompactPlan>> plan = of->plan.at(sizes, site_.profile);
    const bool is_loaded = !site_.has_device || of->launcher != nullptr;
    if (!plan || !is_loaded || !site_.has_room_for((*plan)->bytes())) {
      KW_ASSIGN(const BoundProblem problem, family.example.resized(family.dims(sizes)));
      KW_TRY(site_.check_memory(problem));
      return resolve(problem);
    }
    std::unique_ptr<Launcher> launcher;
    if (site_.has_device) {
      KW_ASSIGN(launcher, of->launcher->with(*plan));
    }
    return Loaded(std::make_shared<const PlannedKernel>(
        of, sized.sizes(), *plan, std::move(launcher), why_not_launched(), options_.check_launches));
  });
  if (loaded) return *std::move(loaded);
  return std::make_shared<const ServedKernel>(
      std::make_shared<const GradedRecord>(),
      KernelSummary{.problem = of->plan.problem(sizes).text()},
      std::make_shared<const CompactPlan>(ExecutionPlan()), nullptr, loaded.error(), options_.check_launches);
}

Result<const LoadedKernel*> ServiceCore::find_or_make(const Problem& written,
                                                      const BoundProblem& problem,
                                                      std::optional<void*> stream) {
  KW_ASSIGN(const bool capturing,
            stream&& site_.has_device ? surroundings_.in_capture(*stream) : Result<bool>(false));
  if (capturing) {
    if (const LoadedKernel* hot = table_.find(written)) return hot;
    return Error{ErrorCode::refused,
                 concat(problem.text(),
                        " is not in memory, and nothing can be loaded while the stream is in a "
                        "capture; get its kernel or prewarm it before the capture")};
  }
  return table_.find_or_make(written, problem.problem(), worst_in_memory(),
                             [&] { return resolve(problem); });
}

Result<void> ServiceCore::record_shapes(const std::filesystem::path& file) {
  std::shared_ptr<ShapeRecorder> recorder;
  if (!file.empty()) {
    const LookupLog log(file);
    KW_TRY(log.check());
    recorder = std::make_shared<ShapeRecorder>(log);
  }
  {
    const MutexLock lock(watch_mutex_);
    std::swap(recorder, recorder_);
    watched_ = recorder_ != nullptr || autotune_seconds_ > 0;
  }
  return recorder ? recorder->flush() : Result<void>();
}

void ServiceCore::autotune(double seconds) {
  const MutexLock lock(watch_mutex_);
  autotune_seconds_ = seconds;
  watched_ = recorder_ != nullptr || seconds > 0;
}

std::optional<double> ServiceCore::tuning_seconds() const {
  if (!may_compile()) return std::nullopt;
  if (const double seconds = autotune_seconds_; seconds > 0) return seconds;
  if (options_.on_miss == MissPolicy::tune_now) return options_.tune_seconds;
  return std::nullopt;
}

void ServiceCore::record(const KernelSummary& answer) {
  if (!watched_.load(std::memory_order_relaxed)) return;
  std::shared_ptr<ShapeRecorder> recorder;
  {
    const MutexLock lock(watch_mutex_);
    recorder = recorder_;
  }
  if (!recorder) return;
  const Result<void> added = recorder->add({.key = site_.key(answer.problem),
                                            .match = answer.match,
                                            .reason = answer.reason,
                                            .time = utc_now()});
  if (!added) site_.say(LogLevel::warning, concat("not recorded: ", added.error().message));
}

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

void ServiceCore::tune_in_background(const Problem& normalized) {
  if (!background_) return;
  if (Result<void> asked = background_->ask(normalized); !asked) {
    site_.say(
        LogLevel::warning,
        concat(normalized.text(), " is not tuned in the background: ", asked.error().message));
  }
}

void ServiceCore::make_shortlist_in_background(const BoundProblem& problem) {
  if (!shortlisting_ || shortlists_.knows(problem)) return;
  if (const Result<void> asked = shortlisting_->ask(problem.problem()); !asked) {
    site_.say(LogLevel::warning,
              concat("no shortlist for ", problem.text(), ": ", asked.error().message));
  }
}

Metrics ServiceCore::metrics() const {
  Metrics metrics{
      .sku = site_.profile.id,
      .bundles = {},
      .lookups = counters_.read(),
      .compiles = static_cast<std::uint64_t>(builder_.pool().compiled()),
      .compile_seconds = std::chrono::duration<double>(builder_.pool().compile_time()).count(),
      .ready = builder_.seal().closed(),
      .compiles_after_ready = builder_.seal().counted(),
      .loaded_kernels = loaded_kernels_,
      .loaded_bytes = loaded_bytes_};
  for (const std::filesystem::path& layer : site_.cache.roots()) {
    if (std::string bundle = bundle_of(layer); !bundle.empty()) {
      metrics.bundles.push_back(std::move(bundle));
    }
  }
  return metrics;
}

void ServiceCore::seal(SealMode mode) {
  builder_.seal().close(mode);
  if (mode != SealMode::error) return;
  if (background_) background_->end();
  if (shortlisting_) shortlisting_->end();
}

Result<ServiceCore::Tuned> ServiceCore::tune(const Problem& problem, TuningOptions options,
                                             const std::atomic<bool>* stop) {
  KW_TRY(check_not_forked());
  KW_ASSIGN(const BoundProblem bound, bind(problem));
  const AwaitedTunings::Awaited awaited(awaited_);
  KW_ASSIGN(TuningResult tuned,
            desk_.tune(bound, std::move(options), stop == nullptr ? awaited.stop() : stop));
  KW_ASSIGN(auto winner, load(bound, tuned, Match::exact, MissReason::none));
  const LoadedKernel* served = table_.publish(problem, bound.problem(), std::move(winner));
  if (shortlisting_ && shortlists_.knows(bound)) {
    families_.forget(bound);  // near sizes take the new winner
    static_cast<void>(shortlisting_->ask(bound.problem()));
  }
  return Tuned{std::move(tuned), served->handle()};
}

Result<TunedFamily> ServiceCore::tune_family(const Problem& problem, FamilyOptions options,
                                             const std::atomic<bool>* stop) {
  KW_TRY(check_not_forked());
  KW_ASSIGN(const RangedProblem family, site_.bind_family(problem));
  const AwaitedTunings::Awaited awaited(awaited_);
  KW_ASSIGN(TunedFamily tuned,
            desk_.tune_family(family, std::move(options), stop == nullptr ? awaited.stop() : stop));
  for (const Problem& example : families_.forget(family)) {
    if (shortlisting_) static_cast<void>(shortlisting_->ask(example));
  }
  return tuned;
}

Result<std::vector<BoundProblem>> ServiceCore::ask_family(const Problem& problem) {
  KW_TRY(check_not_forked());
  KW_ASSIGN(const RangedProblem family, site_.bind_family(problem));
  std::vector<BoundProblem> examples;
  // Each combination of the intervals that the ranges meet, by its least or its largest problem. A
  // dim that follows others may have to be in between.
  std::vector<std::int64_t> least;
  std::vector<std::int64_t> largest;
  const auto visit = [&](const auto& self) -> void {
    if (least.size() == family.free().size()) {
      Result<BoundProblem> example = family.at(least);
      if (!example) example = family.at(largest);
      for (std::size_t i = 0; i < least.size() && !example; ++i) {
        std::vector<std::int64_t> sizes = least;
        while (!example && sizes[i] <= largest[i] / 2) {
          sizes[i] *= 2;
          example = family.at(sizes);
        }
      }
      if (example && site_.check_memory(*example)) examples.push_back(*std::move(example));
      return;
    }
    const FreeDim& range = family.free()[least.size()];
    const Dim& dim = *find_named(family.last().operation().dims, range.name);
    for (std::int64_t first = range.first; first <= range.last;) {
      const std::size_t interval = dim.interval(first);
      const std::int64_t end = interval < dim.edges.size() ? dim.edges[interval] : range.last;
      least.push_back(first);
      largest.push_back(std::min(end, range.last));
      self(self);
      first = largest.back() + 1;
      least.pop_back();
      largest.pop_back();
    }
  };
  visit(visit);
  if (examples.empty()) {
    return Error{ErrorCode::invalid_argument,
                 concat("no size of ", family.text(), " is accepted, or fits in the memory")};
  }
  for (const BoundProblem& example : examples) {
    if (!shortlisting_) break;
    families_.learn(example.problem(), example);
    if (!shortlists_.knows(example)) KW_TRY(shortlisting_->ask(example.problem()));
  }
  return examples;
}

Result<void> ServiceCore::prewarm_family(const Problem& problem) {
  KW_ASSIGN(const std::vector<BoundProblem> examples, ask_family(problem));
  wait_for_shortlists();
  KW_ASSIGN(const RangedProblem family, site_.bind_family(problem));
  for (const BoundProblem& example : examples) {
    KW_TRY(get_best_kernel(example.problem()));
    // Launches with a workspace of the caller need none of the pool.
    if (const auto reserved = reserve_workspace(example, family.free()); !reserved) {
      site_.say(LogLevel::warning, concat("no workspace is reserved for ", family.text(), ": ",
                                          reserved.error().message));
    }
  }
  return {};
}

Result<void> ServiceCore::reserve_workspace(const BoundProblem& of_family,
                                            const std::vector<FreeDim>& ranges) {
  const std::optional<FamilyTable::Found> found = families_.find(of_family.problem());
  if (!found || !site_.has_device) return {};
  const Family& family = *found->family;
  std::vector<FreeDim> asked = family.free;
  for (FreeDim& dim : asked) {
    if (const FreeDim* const range = find_named(ranges, dim.name)) {
      dim.first = std::max(dim.first, range->first);
      dim.last = std::min(dim.last, range->last);
    } else {
      dim.first = dim.last = of_family.scope().find(dim.name).value_or(dim.first);
    }
  }
  const Family::Kernel* most = nullptr;
  std::int64_t most_bytes = 0;
  const auto look_at = [&](const std::vector<double>& places) {
    std::vector<std::int64_t> sizes;
    for (std::size_t i = 0; i < asked.size(); ++i) sizes.push_back(size_at(asked[i], places[i]));
    const std::optional<std::size_t> chosen = family.choose(sizes);
    if (!chosen) return;
    const Family::Kernel& kernel = *family.kernels[*chosen];
    const auto plan = kernel.plan.at(sizes, site_.profile);
    if (!plan || kernel.launcher == nullptr || (*plan)->workspace_bytes() <= most_bytes) return;
    most = &kernel;
    most_bytes = (*plan)->workspace_bytes();
  };
  constexpr int kLooks = 256;
  look_at(std::vector<double>(asked.size(), 1));
  for (const auto& places : spread_evenly(asked.size(), kLooks)) look_at(places);
  return most == nullptr ? Result<void>() : most->launcher->reserve_workspace(most_bytes);
}

Result<TuningResult> ServiceCore::predict(const Problem& problem, const TuningBudget& budget) {
  KW_ASSIGN(const BoundProblem bound, bind(problem));
  return desk_.predict(bound, budget);
}

Coverage ServiceCore::coverage(const Problem& problem) const {
  const Result<BoundProblem> bound = bind(problem);
  if (!bound) return {};
  return answers_.find(
      *bound, options_.min_match, AnswerFinder::Bits::stored,
      [](const GradedRecord&, const Result<Offer>& offer) { return offer.has_value(); });
}

Result<void> ServiceCore::canary(const Problem& problem) {
  if (!site_.has_device) {
    return Error{ErrorCode::unavailable,
                 concat("nothing is launched for the sku ", site_.profile.id, " without a GPU")};
  }
  KW_ASSIGN(const BoundProblem bound, bind(problem));
  Result<void> launched;
  const Coverage served = answers_.find(
      bound, options_.min_match, bits(), [&](const GradedRecord&, const Result<Offer>& offer) {
        if (!offer) return false;
        launched = [&]() -> Result<void> {
          KW_ASSIGN(const auto device, surroundings_.open_device(options_.device));
          return launch_once(*device, offer->artifact.kernel->bits, offer->candidate.plan);
        }();
        return true;
      });
  if (served.match != Match::none) return launched;
  return Error{ErrorCode::not_found,
               concat("nothing is served for ", bound.text(), " (", to_string(served.reason), ")")};
}

Result<Builder::Recompiled> ServiceCore::recompile(const RecordHead& head) {
  const Result<Problem> problem = Problem::parse(head.key.problem);
  if (!problem) return Builder::Recompiled::other_code;
  const Result<BoundProblem> bound = bind(*problem);
  if (!bound) return Builder::Recompiled::other_code;
  MissReason refused = MissReason::none;
  const Result<Candidate> winner = answers_.candidate(*bound, head.winner, refused);
  if (!winner) return Builder::Recompiled::other_code;
  return builder_.recompile(*winner, head.winner.artifact);
}

}  // namespace kernwright
