#include "service/report/sweep_report.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "cache/records/record_view.h"
#include "support/text.h"
#include "tuner/audit/audit.h"
#include "tuner/finals/decision.h"
#include "tuner/finals/interval.h"

namespace kernwright {
namespace {

/// The cost of a kernel before it works, if the profile does not know it: an H200's, rounded.
constexpr double kUsualNodeUs = 0.5;

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

Support support_of(const TuningRecord& record) {
  if (record.grade == RecordGrade::predicted || record.trust == Trust::c) return Support::caveated;
  if (record.winner.traits.is_default) return Support::default_kept;
  const bool beats_default = record.baseline && record.baseline->slowdown.low > 0;
  const bool sure = record.trust == Trust::a && record.verdict != Verdict::unresolved;
  return beats_default && sure ? Support::supported : Support::measured;
}

/// Returns nullopt if the two were not timed in the same rounds.
std::optional<Slowdown> slowdown_of(const RankedConfiguration& other, const TuningRecord& record) {
  const FinalTimes own = final_times(record.winner, record.rounds);
  const FinalTimes times = final_times(other, record.rounds);
  const auto between = [](const Measurement& slower, const Measurement& faster,
                          std::span<const int> dropped,
                          Pairing pairing) -> std::optional<Slowdown> {
    const std::vector<double> logs = log_times(slower.samples_us, dropped);
    const std::vector<double> winner = log_times(faster.samples_us, dropped);
    if (logs.empty() || winner.empty()) return std::nullopt;
    return paired_interval(logs, winner, pairing).slowdown;
  };
  // Blocks decide if both have them.
  if (auto alone = between(times.alone, own.alone, {}, Pairing::blocks)) return alone;
  return between(times.in_turn, own.in_turn, record.rounds.dropped, Pairing::rounds);
}

/// Returns the runner-up's slowdown against the winner. Its own slowdown in the record is against
/// the fastest finalist, which a winner by rule is not.
std::optional<Slowdown> paired_margin_of(const TuningRecord& record) {
  if (record.grade == RecordGrade::predicted || record.runners_up.empty()) return std::nullopt;
  const RankedConfiguration& second = record.runners_up.front();
  if (const std::optional<Slowdown> paired = slowdown_of(second, record)) return paired;
  const bool winner_is_fastest = record.winner.slowdown == Slowdown{};
  return winner_is_fastest && second.slowdown != Slowdown{} ? std::optional(second.slowdown)
                                                            : std::nullopt;
}

double margin_of(const TuningRecord& record, const std::optional<Slowdown>& paired) {
  if (record.runners_up.empty()) return 0;
  const RankedConfiguration& second = record.runners_up.front();
  // A runner-up that seems faster cannot be told apart from the winner.
  if (record.grade == RecordGrade::measured) {
    return std::max(0.0, std::expm1(paired ? paired->estimate : second.slowdown.estimate));
  }
  if (record.winner.predicted_us <= 0) return 0;
  return std::max(0.0, second.predicted_us / record.winner.predicted_us - 1);
}

std::vector<Speedup> speedups_of(const TuningRecord& record) {
  if (record.grade == RecordGrade::predicted) return {};
  std::vector<Speedup> speedups;
  const auto add = [&](Speedup::Over over, const RankedConfiguration& other) {
    if (other.choice == record.winner.choice) return;
    const std::optional<Slowdown> slowdown = slowdown_of(other, record);
    if (!slowdown) return;
    speedups.push_back(
        {over, std::exp(slowdown->estimate), std::exp(slowdown->low), std::exp(slowdown->high)});
  };
  if (record.baseline) add(Speedup::Over::default_configuration, *record.baseline);
  for (const RankedConfiguration& other : record.runners_up) {
    if (other.traits.is_predicted) add(Speedup::Over::first_choice, other);
    if (other.traits.is_incumbent) add(Speedup::Over::previous_winner, other);
  }
  return speedups;
}

NextStep next_step(const TuningRecord& record) {
  constexpr const char* kLonger = "tune with more --seconds";
  if (record.grade == RecordGrade::predicted) return {"tune on the device", "nothing was measured"};
  for (const AuditRow& row : record.audit.rows) {
    if (row.trust == Trust::a || row.trust != record.trust || remedy(row.check).empty()) continue;
    return {concat(remedy(row.check), ", and tune again"),
            concat(row.check, " (", row.detail, ")")};
  }
  if (hardly_looked(record)) return {kLonger, tried_words(record)};
  if (record.verdict == Verdict::unresolved) return {kLonger, "the finals ended too early"};
  if (may_be_faster(record)) {
    return {kLonger, concat("what was not tried may be ", percent(record.search.regret_estimate),
                            " faster")};
  }
  return {};
}

}  // namespace

std::string NextStep::text() const {
  return reason.empty() ? action : concat(action, ": ", reason);
}

bool Speedup::level() const { return low <= 1 && high * (1 + kEquivalence) > 1; }

const Speedup* over_default(const ReportRow& row) {
  const auto found = std::find_if(row.speedups.begin(), row.speedups.end(), [](const Speedup& s) {
    return s.over == Speedup::Over::default_configuration;
  });
  return found == row.speedups.end() ? nullptr : &*found;
}

ReportRow report_row(const TuningRecord& record, const BoundProblem* problem,
                     const DeviceProfile& profile) {
  ReportRow row;
  row.us = winner_us(record);
  row.roofline_share = row.us > 0 ? record.roofline_us / row.us : 0;
  if (problem != nullptr) row.bound = bound_of(record, *problem, profile);
  row.paired_margin = paired_margin_of(record);
  row.margin = margin_of(record, row.paired_margin);
  row.support = support_of(record);
  row.speedups = speedups_of(record);
  row.next = next_step(record);
  return row;
}

}  // namespace kernwright
