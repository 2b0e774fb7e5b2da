#include "service/sweep/sweep_plan.h"

#include <set>
#include <utility>

#include "service/sweep/sweep_state.h"
#include "tuner/candidates/candidate_list.h"

namespace kernwright {
namespace {

// Worker, buffers and reference of one problem; measured on an H200 for shapes of 4096.
constexpr double kSetUpSeconds = 2;

SweepPlan::Row plan_problem(const ServiceCore& service, const Problem& normalized, bool recheck) {
  SweepPlan::Row row;
  row.problem = normalized;
  row.due = false;
  const RecordGrade wanted = service.has_device() ? RecordGrade::measured : RecordGrade::predicted;
  const Result<BoundProblem> bound = service.bind(normalized);
  if (!bound) {
    row.impossible = bound.error().message;
    return row;
  }
  const std::vector<GradedRecord> known = service.answers().look_up(*bound).records;
  if (sweep_state(known, wanted, recheck).settled != nullptr) return row;
  const Result<CandidateList> list =
      enumerate_candidates(service.catalog(), *bound, service.profile());
  if (!list) {
    row.impossible = list.error().message;
    return row;
  }
  row.due = true;
  row.candidates = static_cast<std::int64_t>(list->candidates.size());
  const std::set<int> groups(list->group_of.begin(), list->group_of.end());
  row.compiles = static_cast<std::int64_t>(groups.size());
  return row;
}

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
  for (const Row& row : rows) count += row.candidates;
  return count;
}

std::int64_t SweepPlan::compiles() const {
  std::int64_t count = 0;
  for (const Row& row : rows) count += row.compiles;
  return count;
}

double SweepPlan::seconds(double seconds_per_problem, int gpus) const {
  return static_cast<double>(due()) * (seconds_per_problem + kSetUpSeconds) / gpus;
}

SweepPlan plan_sweep(const ServiceCore& service, const std::vector<Problem>& normalized,
                     bool recheck, const std::function<void(std::size_t)>& progress) {
  SweepPlan plan;
  for (const Problem& problem : normalized) {
    plan.rows.push_back(plan_problem(service, problem, recheck));
    progress(plan.rows.size());
  }
  return plan;
}

}  // namespace kernwright
