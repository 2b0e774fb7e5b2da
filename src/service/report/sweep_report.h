#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/records/record.h"
#include "model/candidate/device_profile.h"
#include "model/operation/bound_problem.h"

namespace kernwright {

/// The limit that bounds a kernel: the roofline's memory or arithmetic side, or the cost of
/// launching.
enum class Bound { memory, compute, launch };

/// The claim that a record allows about its winner. `supported`: clearly faster than the default,
/// on a device of trust A; `measured`: measured, but not `supported`; `default_kept`: no candidate
/// beat the default, which is served; `caveated`: of trust C, or only predicted.
enum class Support { supported, measured, caveated, default_kept };

constexpr auto names_of(Bound) {
  return std::to_array<std::string_view>({"memory", "compute", "launch"});
}
constexpr auto names_of(Support) {
  return std::to_array<std::string_view>({"supported", "measured", "caveated", "default_kept"});
}

/// How many times as fast a measured winner is as the answer from before it was measured.
struct Speedup {
  /// The answer that the winner replaces: the `default_configuration`, the cost model's
  /// `first_choice`, which a lookup without a record gets, or the `previous_winner`.
  enum class Over { default_configuration, first_choice, previous_winner };
  Over over = Over::default_configuration;
  double times = 1;
  double low = 1;  ///< with `high` the confidence interval, see `Slowdown`
  double high = 1;

  /// Returns true if the winner is not faster beyond doubt, and not slower by `kEquivalence` or
  /// more. A winner that a person pinned may be slower.
  bool level() const;
};

constexpr auto names_of(Speedup::Over) {
  return std::to_array<std::string_view>({"default", "first_choice", "previous_winner"});
}

/// A step that a person can take to know more, or to become faster.
struct NextStep {
  std::string action;  ///< "tune with more --seconds"; empty: nothing is foreseeable
  std::string reason;  ///< "3 of 2341 candidates were tried"

  /// Returns "tune with more --seconds: 3 of 2341 candidates were tried".
  std::string text() const;
};

/// A record judged for a report.
struct ReportRow {
  double us = 0;               ///< measured, or else predicted
  double roofline_share = 0;   ///< 1: at the roofline
  std::optional<Bound> bound;  ///< nullopt if the problem's operation is not known
  /// How much slower the runner-up is: 0.02 is 2 %; 0 if there is none, or it is not slower.
  double margin = 0;
  /// The same with its interval, over the rounds that both were in. It may be negative if a rule
  /// chose among finalists that cannot be told apart. Nullopt if there are no such rounds.
  std::optional<Slowdown> paired_margin;
  Support support = Support::caveated;
  /// The speedup over each of these answers that the finals had, unless it is the winner itself.
  std::vector<Speedup> speedups;
  NextStep next;
};

/// Returns the speedup over the default configuration, or null if there is none.
const Speedup* over_default(const ReportRow& row);

/// `problem` is the record's, or null if its operation is not known.
ReportRow report_row(const TuningRecord& record, const BoundProblem* problem,
                     const DeviceProfile& profile);

}  // namespace kernwright
