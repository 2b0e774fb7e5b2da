#include "service/sweep/sweep_problem.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "cache/fields/field_writer.h"
#include "cache/fields/json_fields.h"
#include "service/sweep/sweep_state.h"
#include "support/try.h"

namespace kernwright {
namespace {

/// NVRTC takes 4 to 8 s for the kernel that draws the inputs of attention, which is as long as a
/// few problems of a quick sweep take.
constexpr std::size_t kProblemsAhead = 8;

}  // namespace

SweepResult sweep_problem(const ServiceCore& service, const Problem& problem,
                          const SweepSettings& settings, const SweepTune& tune) {
  const RecordGrade wanted = service.has_device() ? RecordGrade::measured : RecordGrade::predicted;
  const Result<BoundProblem> bound = service.bind(problem);
  if (!bound) return {.error = bound.error().message};
  const std::vector<GradedRecord> known = service.answers().look_up(*bound).records;
  const SweepState state = sweep_state(known, wanted, settings.recheck);
  if (state.settled != nullptr) {
    Lookup<TuningRecord> record = read_record(state.settled->file);
    if (record) return {.record = std::move(record.value), .found = true};
  }
  TuningOptions options;
  if (settings.seconds) options.budget.seconds = *settings.seconds;
  Result<TuningResult> tuned = tune(problem, std::move(options));
  if (!tuned) return {.error = tuned.error().message};
  return {.record = std::move(tuned->record),
          .tuned_again = state.provisional,
          .unstored = std::move(tuned->unstored)};
}

std::optional<TieredCache::FoundFamily> settled_family(const ServiceCore& service,
                                                       const Problem& family, bool recheck) {
  const Result<RangedProblem> ranged = service.site().bind_family(family);
  if (!ranged) return std::nullopt;
  const RecordKey key = service.site().key(ranged->text());
  for (TieredCache::FoundFamily& found : service.cache().families(key)) {
    if (found.head.key != key || found.head.trust == Trust::c) continue;
    const bool fits = std::ranges::all_of(found.head.kernels, [&](const FamilyKernel& kernel) {
      const Match match = service.answers().graded(found.head, kernel).match;
      return match == Match::family || (match == Match::recheck && !recheck);
    });
    if (fits) return std::move(found);
  }
  return std::nullopt;
}

SweepResult sweep_family(ServiceCore& service, const Problem& family,
                         const SweepSettings& settings) {
  if (auto known = settled_family(service, family, settings.recheck)) {
    return {.family = std::move(known->head), .found = true};
  }
  FamilyOptions options;
  if (settings.seconds) options.seconds = *settings.seconds;
  Result<TunedFamily> tuned = service.tune_family(family, std::move(options));
  if (!tuned) return {.error = tuned.error().message};
  return {.family = std::move(tuned->record.head), .unstored = std::move(tuned->unstored)};
}

void compile_for_next(ServiceCore& service, std::span<const Problem> problems,
                      const SweepSettings& settings) {
  std::vector<BoundProblem> next;
  for (const Problem& problem : problems) {
    Result<BoundProblem> bound = service.bind(problem);
    if (!bound) continue;
    const std::vector<GradedRecord> known = service.answers().look_up(*bound).records;
    if (sweep_state(known, RecordGrade::measured, settings.recheck).settled != nullptr) continue;
    next.push_back(*std::move(bound));
    if (next.size() == kProblemsAhead) break;
  }
  service.desk().compile_ahead(std::move(next));
}

std::string to_json(const SweepResult& result) {
  FieldWriter fields;
  if (result.record) {
    fields.field("record", to_json(*result.record));
    fields.field("unstored", result.unstored);
  } else if (result.family) {
    fields.field("family", to_json(*result.family));
    fields.field("unstored", result.unstored);
  } else {
    fields.field("error", result.error);
  }
  fields.field("found", result.found);
  fields.field("tuned_again", result.tuned_again);
  return fields.text();
}

Result<SweepResult> parse_sweep_result(std::string_view json) {
  SweepResult result;
  std::string record;
  std::string family;
  const Result<void> parsed = parse_fields(json, "sweep result", [&](FieldReader& fields) {
    if (fields.contains("record")) {
      fields.field("record", record);
      fields.field("unstored", result.unstored);
    } else if (fields.contains("family")) {
      fields.field("family", family);
      fields.field("unstored", result.unstored);
    } else {
      fields.field("error", result.error);
    }
    fields.field("found", result.found);
    fields.field("tuned_again", result.tuned_again);
  });
  if (!parsed) return parsed.error();
  if (!record.empty()) {
    KW_ASSIGN(result.record, parse_record(record));
  }
  if (!family.empty()) {
    KW_ASSIGN(result.family, parse_family_head(family));
  }
  return result;
}

}  // namespace kernwright
