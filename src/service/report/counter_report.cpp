#include "service/report/counter_report.h"

#include <algorithm>
#include <cmath>

#include "cache/records/record_view.h"
#include "support/text.h"

namespace kernwright {
namespace {

const RankedConfiguration* find_in(const TuningRecord& record, const Choice& choice) {
  if (record.winner.choice == choice) return &record.winner;
  if (record.baseline && record.baseline->choice == choice) return &*record.baseline;
  const auto found = std::ranges::find(record.runners_up, choice, &RankedConfiguration::choice);
  return found == record.runners_up.end() ? nullptr : &*found;
}

std::string commonest_stall(const CounterSet& set) {
  std::string reason;
  double most = 0;
  for (const Counter& counter : counters()) {
    const std::optional<double> warps =
        stall_reason(counter.name).empty() ? std::nullopt : set.mean(counter.name);
    if (!warps || *warps <= most) continue;
    most = *warps;
    reason = stall_reason(counter.name);
  }
  return reason;
}

/// Returns how the counters contradict the model. The model's bound is the record's own, so this is
/// about its winner alone.
std::string disagreement(const CounterReport& report, Bound model) {
  if (!report.counted || report.busy == model) return {};
  const std::string model_says = concat("the model says ", to_string(model), ", the counters ");
  if (report.busy) {
    return model == Bound::launch
               ? concat(model_says, to_string(*report.busy), ": it works for most of its time")
               : concat(model_says, to_string(*report.busy));
  }
  // A kernel that the launch bounds keeps nothing busy.
  if (model == Bound::launch) return {};
  std::string text = concat(model_says, "neither:");
  auto add = [&, comma = false](std::string_view what, const std::optional<double>& share) mutable {
    if (!share) return;
    text += concat(comma ? ", " : " ", what, ' ', fixed(*share, 0), " %");
    comma = true;
  };
  add("memory is busy for", report.memory_share);
  add("tensor cores for", report.tensor_share);
  add("issue slots for", report.issue_share);
  return text;
}

}  // namespace

std::string role_in(const TuningRecord& record, const Choice& choice) {
  const RankedConfiguration* ranked = find_in(record, choice);
  if (ranked == nullptr) return {};
  if (ranked == &record.winner) return "winner";
  if (record.baseline && ranked == &*record.baseline) return "default";
  const auto place = ranked - record.runners_up.data() + 2;
  return concat(place, place == 2 ? "nd" : place == 3 ? "rd" : "th");
}

CounterReport counter_report(const CounterSet& set, const TuningRecord& record,
                             const BoundProblem& problem, const DeviceProfile& profile) {
  CounterReport report;
  report.time_us = set.time_us();
  const RankedConfiguration* ranked = find_in(record, set.choice);
  if (ranked != nullptr) {
    const Measurement in_turn = final_times(*ranked, record.rounds).in_turn;
    if (!in_turn.samples_us.empty()) report.race_us = in_turn.median_us();
  }
  if (report.time_us && report.race_us > 0 && set.cache == record.key.policy.l2) {
    report.time_differs = std::abs(*report.time_us / report.race_us - 1) > kCounterSlack;
  }
  if (const auto bytes = problem.operation().bytes.evaluate(problem.scope())) {
    report.counted_bytes = static_cast<double>(bytes.value());
  }
  const std::optional<double> read = set.sum(kDramReadCounter);
  const std::optional<double> written = set.sum(kDramWriteCounter);
  if (read && written) report.measured_bytes = *read + *written;
  report.memory_share = set.mean(kDramShareCounter);
  report.tensor_share = set.mean(kTensorShareCounter);
  report.issue_share = set.mean(kIssueCounter);
  report.waits_for = commonest_stall(set);
  report.counted = report.memory_share && report.issue_share;
  if (report.counted) {
    // Without a counter of tensor cores the issue slots alone speak for arithmetic.
    const double arithmetic = std::max(report.tensor_share.value_or(0), *report.issue_share);
    if (std::max(*report.memory_share, arithmetic) >= kBusyShare) {
      report.busy = *report.memory_share >= arithmetic ? Bound::memory : Bound::compute;
    }
  }
  const bool of_winner = set.choice == record.winner.choice;
  if (of_winner && set.cache == record.key.policy.l2) {
    report.disagreement = disagreement(report, *report_row(record, &problem, profile).bound);
  }
  return report;
}

}  // namespace kernwright
