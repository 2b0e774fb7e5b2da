#include "service/report/comparison.h"

#include <cmath>
#include <vector>

#include "cache/records/record_view.h"
#include "tuner/finals/decision.h"
#include "tuner/finals/interval.h"

namespace kernwright {
namespace {

/// Returns the interval of the logarithm of the winner's median.
Slowdown median_of(const TuningRecord& record) {
  const Measurement in_turn = final_times(record.winner, record.rounds).in_turn;
  const std::vector<double> logs = log_times(in_turn.samples_us, record.rounds.dropped);
  if (logs.empty()) return {};
  return paired_interval(logs, std::vector<double>(logs.size(), 0.0)).slowdown;
}

bool is_measured(const TuningRecord& record) {
  return record.grade == RecordGrade::measured && !record.winner.measurement.samples_us.empty();
}

double us_of(const TuningRecord& record) {
  return is_measured(record) ? final_times(record.winner, record.rounds).in_turn.median_us()
                             : record.winner.predicted_us;
}

}  // namespace

Comparison compare_winners(const TuningRecord& old_record, const TuningRecord& new_record) {
  Comparison comparison;
  if (!is_measured(old_record) || !is_measured(new_record)) {
    const double before = us_of(old_record);
    const double after = us_of(new_record);
    if (before > 0 && after > 0) {
      const double log = std::log(after / before);
      comparison.slowdown = {log, log, log};
    }
    const bool both_predicted = !is_measured(old_record) && !is_measured(new_record);
    if (both_predicted && std::abs(comparison.slowdown.estimate) < 1e-6 &&
        old_record.winner.choice == new_record.winner.choice) {
      comparison.change = Change::equal;
    }
    return comparison;
  }
  const Slowdown before = median_of(old_record);
  const Slowdown after = median_of(new_record);
  comparison.slowdown = {after.estimate - before.estimate,
                         after.low - before.high - kBetweenSessions,
                         after.high - before.low + kBetweenSessions};
  const auto& [estimate, low, high] = comparison.slowdown;
  if (high < 0 && estimate <= -kEquivalence) {
    comparison.change = Change::faster;
  } else if (low > 0 && estimate >= kEquivalence) {
    comparison.change = Change::slower;
  } else if (low >= -kSameTime && high <= kSameTime) {
    comparison.change = Change::same;
  }
  return comparison;
}

}  // namespace kernwright
