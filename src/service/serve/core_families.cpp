#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "service/serve/core.h"
#include "service/serve/guarded.h"
#include "support/names.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/candidates/family_fit.h"
#include "tuner/cost/cost_model.h"

namespace kernwright {
namespace {

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
    return Loaded(std::make_shared<const PlannedKernel>(of, sized.sizes(), *plan,
                                                        std::move(launcher), why_not_launched(),
                                                        options_.check_launches));
  });
  if (loaded) return *std::move(loaded);
  return std::make_shared<const ServedKernel>(
      std::make_shared<const GradedRecord>(),
      KernelSummary{.problem = of->plan.problem(sizes).text()},
      std::make_shared<const CompactPlan>(ExecutionPlan()), nullptr, loaded.error(),
      options_.check_launches);
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

Coverage ServiceCore::coverage(const RangedProblem& family) const {
  const std::optional<TieredCache::FoundFamily> found = answers_.record_of(family);
  if (!found) return {};
  Coverage worst{.match = Match::family, .reason = MissReason::none, .of_family = true};
  for (const FamilyKernel& kernel : found->head.kernels) {
    const GradedRecord graded = answers_.graded(found->head, kernel);
    if (graded.match > worst.match) {
      worst.match = graded.match;
      worst.reason = graded.reason;
    }
    if (!site_.cache.artifact(kernel.artifact)) {
      worst.match = Match::none;
      worst.reason = MissReason::artifact_missing;
    }
  }
  worst.best = worst.match;
  if (worst.match > options_.min_match) worst.match = Match::none;
  return worst;
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

}  // namespace kernwright
