#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kernwright/kernel_path.h>

namespace kernwright {

/// How far the environment of a measurement can be trusted. A record of a lower level never
/// outranks one of a higher level. `a`: nothing was found. `b`: usable; a record under `a` replaces
/// it. `c`: provisional; to be measured again at the next chance. The spelling on disk is "A", "B",
/// "C".
enum class Trust { a, b, c };

std::string_view to_string(Trust trust);
std::optional<Trust> parse_trust(std::string_view text);

/// The result of one check of the audit: the trust that it allows, and what was seen.
struct AuditRow {
  std::string check;  ///< "injection_variables", "foreign_processes", "power_cap", ...
  Trust trust = Trust::a;
  std::string detail;

  friend bool operator==(const AuditRow&, const AuditRow&) = default;
};

/// The state of the environment of a measurement.
struct Audit {
  std::vector<AuditRow> rows;

  /// The trust of the worst row; `a` without rows.
  Trust trust() const;
  /// Keeps the worse of the two rows of every check.
  void merge(const Audit& other);

  friend bool operator==(const Audit&, const Audit&) = default;
};

/// How sure the choice among the finalists is. `win`: all others are slower. `tie`: a fixed rule
/// chose the winner among equals. `unresolved`: the rounds ended before that was known.
enum class Verdict { win, tie, unresolved };

std::string_view to_string(Verdict verdict);
std::optional<Verdict> parse_verdict(std::string_view text);

/// How much slower one candidate is than another, as ln(ratio). The two were sampled in the same
/// rounds: the estimate is the median of the paired differences, and `low` and `high` are its
/// distribution-free confidence interval. `kDoubt` in `tuner/finals/interval.cpp` is the
/// probability that the interval misses.
struct Slowdown {
  double estimate = 0;
  double low = 0;
  double high = 0;

  friend bool operator==(const Slowdown&, const Slowdown&) = default;
};

std::optional<KernelPath> parse_kernel_path(std::string_view text);

/// The times of a kernel on one launch path, as medians.
struct PathTime {
  KernelPath path = KernelPath::stream;
  double host_us = 0;    ///< the calling thread's time per launch
  double period_us = 0;  ///< per launch, of launches back to back

  friend bool operator==(const PathTime&, const PathTime&) = default;
};

/// The times of a kernel on every launch path. Empty, without a best path, if it was not measured.
struct LaunchTimes {
  std::vector<PathTime> times;
  std::optional<KernelPath> best;

  friend bool operator==(const LaunchTimes&, const LaunchTimes&) = default;
};

}  // namespace kernwright
