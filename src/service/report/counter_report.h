#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/records/record.h"
#include "model/candidate/device_profile.h"
#include "model/operation/bound_problem.h"
#include "service/report/sweep_report.h"

namespace kernwright {

/// The findings of the counters about a candidate, beside what is known of it without them.
struct CounterReport {
  std::optional<double> time_us;
  double race_us = 0;  ///< in turn, in the record's race; 0: the record has none
  /// True if the two can be compared, and differ by more than `kCounterSlack`.
  bool time_differs = false;
  double counted_bytes = 0;              ///< bytes that the operation must move; 0: not known
  std::optional<double> measured_bytes;  ///< bytes that went between L2 and device memory
  std::optional<double> memory_share;    ///< of the peak, in percent
  std::optional<double> tensor_share;    ///< of the tensor cores, in percent
  std::optional<double> issue_share;     ///< of the issue slots, in percent
  /// The bound that keeps the kernel busy by the counters, above `kBusyShare`. Nullopt: neither
  /// memory nor arithmetic does, or it was not counted.
  std::optional<Bound> busy;
  bool counted = false;   ///< memory and arithmetic were
  std::string waits_for;  ///< the commonest stall, "long_scoreboard"; empty: not counted
  /// How the counters contradict the model's bound of the kernel; empty if they do not.
  std::string disagreement;
};

/// A unit that works for this share of the time, in percent, bounds a kernel. Nsight Compute's
/// guidance calls a kernel bound by latency if no unit reaches it.
inline constexpr double kBusyShare = 60;
/// How far the time under the profiler may be from the race's.
inline constexpr double kCounterSlack = 0.1;

/// `set` is one of the record's, and `problem` the record's.
CounterReport counter_report(const CounterSet& set, const TuningRecord& record,
                             const BoundProblem& problem, const DeviceProfile& profile);

/// Returns "winner", "default", "2nd", "3rd", ...; empty for a candidate that the record does not
/// have.
std::string role_in(const TuningRecord& record, const Choice& choice);

}  // namespace kernwright
