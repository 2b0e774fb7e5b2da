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

std::int64_t SweepPlan::impossible() const {
  std::int64_t count = 0;
  for (const Row& row : rows) count += row.impossible.empty() ? 0 : 1;
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
                             bool recheck, const std::function<void(std::size_t)>& progress) {
  SweepPlan plan;
  const RecordGrade wanted = service.has_device() ? RecordGrade::measured : RecordGrade::predicted;
  for (const Problem& problem : problems) {
    const Result<ServiceCore::Named> named = service.name(problem);
    if (!named) return named.error();
    MissReason reason = MissReason::none;
    const std::vector<GradedRecord> known = service.records(named->problem, reason);
    SweepPlan::Row& row = plan.rows.emplace_back();
    row.problem = named->problem;
    const Result<CandidateList> list = enumerate_candidates(service.catalog(), *named->operation,
                                                            named->problem, service.profile());
    if (list) {
      const std::set<int> groups(list->group_of.begin(), list->group_of.end());
      row.due = sweep_state(known, wanted, recheck).settled == nullptr;
      row.candidates = static_cast<std::int64_t>(list->candidates.size());
      row.compiles = static_cast<std::int64_t>(groups.size());
    } else {
      row.due = false;
      row.impossible = list.error().message;
    }
    progress(plan.rows.size());
  }
  return plan;
}

}  // namespace kernwright
