#include <atomic>
#include <mutex>
#include <utility>

#include "model/catalog/operation_json.h"
#include "model/operation/bind_tensors.h"
#include "service/serve/core.h"
#include "service/serve/guarded.h"
#include "support/processes/threads.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/strategies/search_strategy.h"
#include <kernwright/service.h>

namespace kernwright {
namespace {

Result<TensorBinding> bind_in(const Catalog& catalog, const Problem& options,
                              const std::vector<GivenTensor>& tensors,
                              const std::vector<std::string>& scalars) {
  KW_ASSIGN(const Operation* const operation, catalog.operation(options.operation()));
  return bind_tensors(*operation, tensors, scalars, options);
}

/// Returns the built-in operations, which are read once.
Result<const Catalog*> built_in() {
  static const auto& loaded = *new Result<std::shared_ptr<const Catalog>>(Catalog::load({}));
  if (!loaded) return loaded.error();
  return loaded->get();
}

}  // namespace

Service::Service(std::shared_ptr<ServiceCore> core) : core_(std::move(core)) {}
Service::Service(Service&&) noexcept = default;
Service& Service::operator=(Service&&) noexcept = default;
Service::~Service() = default;

// NOLINTNEXTLINE(performance-unnecessary-value-param): moved within the guard
Result<Service> Service::open(ServiceOptions options) {
  return guarded([&]() -> Result<Service> {
    KW_ASSIGN(std::shared_ptr<ServiceCore> core, ServiceCore::open(std::move(options)));
    return Service(std::move(core));
  });
}

Result<Kernel> Service::get_best_kernel(const Problem& problem) const {
  return guarded([&] { return core_->get_best_kernel(problem); });
}

Result<Kernel> Service::get_best_kernel(const Problem& problem, void* stream) const {
  return guarded([&] { return core_->get_best_kernel(problem, stream); });
}

Result<BorrowedKernel> Service::borrow_best_kernel(const Problem& problem, void* stream) const {
  return guarded([&] { return core_->borrow_best_kernel(problem, stream); });
}

Result<std::vector<Kernel>> Service::get_best_kernels(const Problem& problem,
                                                      std::size_t count) const {
  return guarded([&] { return core_->get_best_kernels(problem, count); });
}

Result<void> Service::prewarm(const std::vector<Problem>& problems) {
  return guarded([&]() -> Result<void> {
    std::string missing;
    std::size_t count = 0;
    std::size_t done = 0;
    const AwaitedTunings::Awaited awaited(core_->awaited());
    for (const Problem& problem : problems) {  // all at the same time
      if (has_range(problem)) static_cast<void>(core_->ask_family(problem));
    }
    for (const Problem& problem : problems) {
      if (awaited.stop()->load()) {
        return Error{ErrorCode::unavailable,
                     concat("stopped after ", done, " of ", counted(problems.size(), "problem"))};
      }
      ++done;
      const Result<void> served = [&]() -> Result<void> {
        if (has_range(problem)) return core_->prewarm_family(problem);
        KW_TRY(core_->get_best_kernel(problem));
        return {};
      }();
      if (served) continue;
      ++count;
      missing += concat("\n  ", problem.text(), ": ", served.error().message);
    }
    core_->wait_for_shortlists();
    if (count == 0) return {};
    return Error{ErrorCode::not_found, concat(count, " of ", counted(problems.size(), "problem"),
                                              " cannot be served:", missing)};
  });
}

Result<TensorBinding> Service::bind(const Problem& options, const std::vector<GivenTensor>& tensors,
                                    const std::vector<std::string>& scalars) const {
  return guarded([&] { return bind_in(core_->catalog(), options, tensors, scalars); });
}

Result<std::optional<BindingPattern>> Service::pattern(
    const Problem& options, const std::vector<GivenTensor>& tensors,
    const std::vector<std::string>& scalars) const {
  return guarded([&]() -> Result<std::optional<BindingPattern>> {
    KW_ASSIGN(const Operation* const operation, core_->catalog().operation(options.operation()));
    return find_pattern(*operation, tensors, scalars, options);
  });
}

std::optional<Kernel> Service::find_in_memory(const Problem& problem) const {
  const auto found = guarded(
      [&]() -> Result<std::optional<BorrowedKernel>> { return core_->find_in_memory(problem); });
  return found && *found ? std::optional(Kernel(**found)) : std::nullopt;
}

Result<Kernel> Service::tune(const Problem& problem, const TuneOptions& options) {
  return guarded([&]() -> Result<Kernel> {
    const double seconds = options.seconds.value_or(core_->tune_seconds(problem));
    if (!(seconds > 0)) {
      return Error{ErrorCode::invalid_argument,
                   concat("seconds is ", seconds, "; it must be above 0")};
    }
    if (options.trials < 0) {
      return Error{ErrorCode::invalid_argument,
                   concat("trials is ", options.trials, "; it must be 0 or more")};
    }
    KW_TRY(check_strategy(options.strategy));
    if (has_range(problem)) {
      FamilyOptions of_family;
      of_family.seconds = seconds;
      KW_TRY(core_->tune_family(problem, std::move(of_family)));
      KW_ASSIGN(const RangedProblem family, core_->site().bind_family(problem));
      return core_->get_best_kernel(family.last().problem());
    }
    TuningOptions tuning{.budget = {.seconds = seconds}, .strategy = options.strategy};
    if (options.trials > 0) tuning.budget.trials = options.trials;
    if (options.progress) {
      tuning.progress = [&options](const TuningProgress& at) {
        options.progress({.candidates = at.candidates,
                          .measured = at.measured,
                          .best_us = at.best_us,
                          .seconds = at.seconds});
      };
    }
    KW_ASSIGN(const ServiceCore::Tuned tuned, core_->tune(problem, std::move(tuning)));
    return tuned.kernel;
  });
}

void Service::stop_tuning() { core_->stop_tuning(); }

Result<void> Service::record_shapes(const std::string& file) {
  return guarded([&] { return core_->record_shapes(file); });
}

void Service::autotune(double seconds) { core_->autotune(seconds); }

void Service::seal(SealMode mode) { core_->seal(mode); }

std::vector<LookupCount> Service::lookup_counts() const { return core_->counters().read(); }

std::string Service::metrics() const { return to_prometheus(core_->metrics()); }

Result<Compilation> Service::compile(const Problem& problem, std::string_view kernel_template,
                                     const ParameterValues& parameters) const {
  return guarded([&]() -> Result<Compilation> {
    KW_ASSIGN(const BoundProblem bound, core_->bind(problem));
    KW_ASSIGN(Candidate candidate, core_->site().candidate(bound, kernel_template, parameters));
    KW_ASSIGN(Artifact artifact, core_->builder().build(candidate));
    const Resources resources = artifact.kernel->resources();
    return Compilation{.artifact = artifact.digest,
                       .cubin = artifact.kernel->bits,
                       .resources = {.registers = resources.registers,
                                     .spill_bytes = resources.spill_bytes(),
                                     .stack_bytes = resources.stack_bytes,
                                     .static_smem_bytes = resources.static_smem_bytes,
                                     .warnings = artifact.kernel->warnings},
                       .cached = artifact.cached};
  });
}

Result<TensorBinding> bind(const Problem& options, const std::vector<GivenTensor>& tensors,
                           const std::vector<std::string>& scalars) {
  return guarded([&]() -> Result<TensorBinding> {
    KW_ASSIGN(const Catalog* const catalog, built_in());
    return bind_in(*catalog, options, tensors, scalars);
  });
}

Result<std::string> describe_operation(const std::string& name) {
  return guarded([&]() -> Result<std::string> {
    KW_ASSIGN(const Catalog* const catalog, built_in());
    KW_ASSIGN(const Operation* const operation, catalog->operation(name));
    return to_json(*operation).dump();
  });
}

Result<Kernel> get_best_kernel(const Problem& problem) {
  // Never destroyed: kernels given out must outlive every other static of the program. A failed
  // opening is tried again by the next call, since a driver or a cache may have come.
  static std::mutex mutex;
  static std::atomic<Service*> service{nullptr};
  if (service == nullptr) {
    // In a forked process the mutex may have been locked by a thread of the parent.
    KW_TRY(check_not_forked());
    const std::lock_guard lock(mutex);
    if (service == nullptr) {
      KW_ASSIGN(Service fresh, Service::open());
      service = new Service(std::move(fresh));
    }
  }
  return service.load()->get_best_kernel(problem);
}

}  // namespace kernwright
