#include "service/report/sweep_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "support/text.h"
#include "tuner/finals/decision.h"
#include "tuner/search/record_parts.h"

namespace kernwright {
namespace {

/// What a kernel costs before it works, where the profile does not know: an H200's, rounded.
constexpr double kUsualNodeUs = 0.5;
/// A gain that would be worth another search.
constexpr double kWorthwhile = 0.02;

std::string percent(double share) { return concat(fixed(100 * share, 1), " %"); }

Bound bound_of(const TuningRecord& record, const BoundProblem& problem,
               const DeviceProfile& profile) {
  if (record.grade == RecordGrade::predicted) {
    const double node_us = profile.graph_node_us > 0 ? profile.graph_node_us : kUsualNodeUs;
    if (record.roofline_us < node_us) return Bound::launch;
  } else if (gap_dominated(record.winner)) {
    return Bound::launch;
  }
  if (profile.dram_gbps <= 0) return Bound::memory;
  const auto bytes = problem.operation().bytes.evaluate(problem.scope());
  if (!bytes) return Bound::memory;
  const double memory_us = static_cast<double>(bytes.value()) / (profile.dram_gbps * 1e3);
  // The roofline is the larger of the two sides.
  return record.roofline_us > memory_us * (1 + 1e-9) ? Bound::compute : Bound::memory;
}

double margin_of(const TuningRecord& record) {
  if (record.runners_up.empty()) return 0;
  const RankedConfiguration& second = record.runners_up.front();
  // A runner-up that seems faster is not told apart from the winner.
  if (record.grade == RecordGrade::measured) {
    return std::max(0.0, std::expm1(second.slowdown.estimate));
  }
  if (record.winner.predicted_us <= 0) return 0;
  return std::max(0.0, second.predicted_us / record.winner.predicted_us - 1);
}

Support support_of(const TuningRecord& record) {
  if (record.grade == RecordGrade::predicted || record.trust == Trust::c) return Support::caveated;
  if (record.winner.traits.is_default) return Support::default_kept;
  const bool beats_default = record.baseline && record.baseline->slowdown.low > 0;
  const bool sure = record.trust == Trust::a && record.verdict != Verdict::unresolved;
  return beats_default && sure ? Support::supported : Support::measured;
}

std::string next_evidence(const TuningRecord& record) {
  if (record.grade == RecordGrade::predicted) return "tuning on the device: nothing was measured";
  for (const AuditRow& row : record.audit.rows) {
    if (row.trust == Trust::a || row.trust != record.trust) continue;
    return concat("measuring again without ", row.check, " (", row.detail, ")");
  }
  if (hardly_looked(record)) {
    return concat("a longer search: ", record.measured + record.search.failed, " of ",
                  record.candidates, " candidates were tried");
  }
  if (record.verdict == Verdict::unresolved) return "more rounds of the finals: a larger --seconds";
  if (record.search.stop_reason == "budget" && record.search.regret_estimate > kWorthwhile) {
    return concat("a longer search: what was not tried may be ",
                  percent(record.search.regret_estimate), " faster");
  }
  return {};
}

}  // namespace

std::string_view to_string(Bound bound) {
  switch (bound) {
    case Bound::memory:
      return "memory";
    case Bound::compute:
      return "compute";
    case Bound::launch:
      return "launch";
  }
  return "memory";
}

std::string_view to_string(Support support) {
  switch (support) {
    case Support::supported:
      return "supported";
    case Support::measured:
      return "measured";
    case Support::caveated:
      return "caveated";
    case Support::default_kept:
      return "default_kept";
  }
  return "caveated";
}

ReportRow report_row(const TuningRecord& record, const BoundProblem& problem,
                     const DeviceProfile& profile) {
  const Measurement in_turn = final_times(record.winner, record.rounds).in_turn;
  ReportRow row;
  row.us = in_turn.samples_us.empty() ? record.winner.predicted_us : in_turn.median_us();
  row.roofline_share = row.us > 0 ? record.roofline_us / row.us : 0;
  row.bound = bound_of(record, problem, profile);
  row.margin = margin_of(record);
  row.support = support_of(record);
  row.next_evidence = next_evidence(record);
  return row;
}

}  // namespace kernwright
