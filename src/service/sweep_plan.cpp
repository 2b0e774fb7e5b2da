#include "service/sweep_plan.h"

#include <set>
#include <utility>

#include "service/sweep_state.h"
#include "tuner/tuning_session.h"

namespace kernwright {
namespace {

// Worker, buffers and reference of one problem; measured on an H200 for shapes of 4096.
constexpr double kSetUpSeconds = 2;

}  // namespace

std::int64_t SweepPlan::due() const {
  std::int64_t count = 0;
  for (const Row& row : rows) count += row.due ? 1 : 0;
  return count;
}

std::int64_t SweepPlan::candidates() const {
  std::int64_t count = 0;
  for (const Row& row : rows) count += row.due ? row.candidates : 0;
  return count;
}

std::int64_t SweepPlan::compiles() const {
  std::int64_t count = 0;
  for (const Row& row : rows) count += row.due ? row.compiles : 0;
  return count;
}

double SweepPlan::seconds(double seconds_per_problem, int gpus) const {
  return static_cast<double>(due()) * (seconds_per_problem + kSetUpSeconds) / gpus;
}

Result<SweepPlan> plan_sweep(const ServiceCore& service, const std::vector<Problem>& problems,
                             const std::function<void(std::size_t)>& progress) {
  SweepPlan plan;
  const RecordGrade wanted = service.has_device() ? RecordGrade::measured : RecordGrade::predicted;
  for (const Problem& problem : problems) {
    const Result<ServiceCore::Named> named = service.name(problem);
    if (!named) return named.error();
    MissReason reason = MissReason::none;
    const std::vector<GradedRecord> known = service.records(named->problem, reason);
    const Result<CandidateList> list = enumerate_candidates(service.catalog(), *named->operation,
                                                            named->problem, service.profile());
    if (!list) return list.error();
    const std::set<int> groups(list->group_of.begin(), list->group_of.end());
    plan.rows.push_back({.problem = named->problem,
                         .due = sweep_state(known, wanted).settled == nullptr,
                         .candidates = static_cast<std::int64_t>(list->candidates.size()),
                         .compiles = static_cast<std::int64_t>(groups.size())});
    progress(plan.rows.size());
  }
  return plan;
}

}  // namespace kernwright
