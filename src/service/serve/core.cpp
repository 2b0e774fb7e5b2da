#include "service/serve/core.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "cache/entries/default_root.h"
#include "cache/layers/bundle.h"
#include "cache/stores/lookup_log.h"
#include "launch/launch_once.h"
#include "service/serve/guarded.h"
#include "support/processes/process_exit.h"
#include "support/text.h"
#include "support/try.h"
#include "support/utc.h"
#include <kernwright/visible.h>

namespace kernwright {
namespace {

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
