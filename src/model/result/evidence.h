#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kernwright/kernel_path.h>

namespace kernwright {

/// How far a measuring environment can be trusted. A record of a lower level never outranks one of
/// a higher level. `a`: nothing found; `b`: usable, replaced by what is measured under `a`; `c`:
/// provisional, to be measured again at the next chance. The spelling on disk is "A", "B", "C".
enum class Trust { a, b, c };

std::string_view to_string(Trust trust);
std::optional<Trust> parse_trust(std::string_view text);

/// One finding of the audit: what was looked at, what it means for the trust, and what was seen.
struct AuditRow {
  std::string check;  ///< "injection_variables", "foreign_processes", "power_cap", ...
  Trust trust = Trust::a;
  std::string detail;

  friend bool operator==(const AuditRow&, const AuditRow&) = default;
};

/// The state of the environment that was measured in.
struct Audit {
  std::vector<AuditRow> rows;

  /// The worst row's; `a` without rows.
  Trust trust() const;
  /// Keeps the worse of both for every check.
  void merge(const Audit& other);

  friend bool operator==(const Audit&, const Audit&) = default;
};

/// How sure the choice among the finalists is. `win`: all others are slower; `tie`: the winner was
/// chosen by a fixed rule among equals; `unresolved`: the rounds were over before that was known.
enum class Verdict { win, tie, unresolved };

std::string_view to_string(Verdict verdict);
std::optional<Verdict> parse_verdict(std::string_view text);

/// How much slower one candidate is than another, as ln(ratio). The two were sampled in the same
/// rounds: the estimate is the median of the paired differences, and `low` and `high` are its
/// distribution-free confidence interval. `kDoubt` in `tuner/finals/decision.cpp` is the
/// probability that the interval misses.
struct Slowdown {
  double estimate = 0;
  double low = 0;
  double high = 0;

  friend bool operator==(const Slowdown&, const Slowdown&) = default;
};

std::optional<KernelPath> parse_kernel_path(std::string_view text);

/// What a kernel takes on one launch path, medians.
struct PathTime {
  KernelPath path = KernelPath::stream;
  double host_us = 0;    ///< the calling thread's time per launch
  double period_us = 0;  ///< of launches back to back

  friend bool operator==(const PathTime&, const PathTime&) = default;
};

/// A kernel on every launch path. Without times it was not measured, and no path is the best.
struct LaunchPaths {
  std::vector<PathTime> times;
  std::optional<KernelPath> best;

  friend bool operator==(const LaunchPaths&, const LaunchPaths&) = default;
};

}  // namespace kernwright
