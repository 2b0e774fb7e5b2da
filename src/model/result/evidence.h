#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

#include "support/names.h"
#include <kernwright/kernel_path.h>

namespace kernwright {

/// How far the environment of a measurement can be trusted. A record of a lower level never
/// outranks one of a higher level. `a`: nothing was found. `b`: usable; a record under `a` replaces
/// it. `c`: provisional; to be measured again at the next chance. The spelling on disk is "A", "B",
/// "C".
enum class Trust { a, b, c };

constexpr auto names_of(Trust) { return std::to_array<std::string_view>({"A", "B", "C"}); }

/// The result of one check of the audit: the trust that it allows, and what was seen.
struct AuditRow {
  std::string check;  ///< "injection_variables", "foreign_processes", "power_cap", ...
  Trust trust = Trust::a;
  std::string detail;

  friend bool operator==(const AuditRow&, const AuditRow&) = default;
};

void describe(auto& visitor, MaybeConst<AuditRow> auto& row) {
  visitor.field("check", row.check);
  visitor.field("trust", row.trust);
  visitor.field("detail", row.detail);
}

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

constexpr auto names_of(Verdict) {
  return std::to_array<std::string_view>({"win", "tie", "unresolved"});
}

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

void describe(auto& visitor, MaybeConst<Slowdown> auto& slowdown) {
  visitor.field("estimate", slowdown.estimate);
  visitor.field("low", slowdown.low);
  visitor.field("high", slowdown.high);
}

constexpr auto names_of(KernelPath) {
  return std::to_array<std::string_view>({"stream", "graph", "rebind"});
}

/// Times of launch paths that differ by less count as equal. Between processes on one host the
/// difference of graph and rebind changes by as much.
inline constexpr double kPathTie = 0.05;

/// The times of a kernel on one launch path, as medians.
struct PathTime {
  KernelPath path = KernelPath::stream;
  double host_us = 0;    ///< the calling thread's time per launch
  double period_us = 0;  ///< per launch, of launches back to back

  friend bool operator==(const PathTime&, const PathTime&) = default;
};

void describe(auto& visitor, MaybeConst<PathTime> auto& time) {
  visitor.field("path", time.path);
  visitor.field("host_us", time.host_us);
  visitor.field("period_us", time.period_us);
}

/// Returns the position of the best of the paths, each with a `host_us` and a `period_us`, or the
/// end if there is none: among those whose period is within `kPathTie` of the shortest, the one
/// with the least host time, and the first of those that are within `kPathTie` of it. Only the
/// medians decide, so that whoever sees them sees why.
template <std::ranges::forward_range Paths>
auto best_path(const Paths& paths) {
  if (std::ranges::empty(paths)) return std::ranges::end(paths);
  const auto period = [](const auto& path) { return path.period_us; };
  const auto host = [](const auto& path) { return path.host_us; };
  const double longest = (1 + kPathTie) * period(*std::ranges::min_element(paths, {}, period));
  auto fast = paths | std::views::filter([=](const auto& path) { return period(path) <= longest; });
  const double dearest = (1 + kPathTie) * host(*std::ranges::min_element(fast, {}, host));
  return std::ranges::find_if(
      paths, [=](const auto& path) { return period(path) <= longest && host(path) <= dearest; });
}

/// The times of a kernel on every launch path. Empty, without a best path, if it was not measured.
struct LaunchTimes {
  std::vector<PathTime> times;
  /// The path that the record names and programs get. Records from before the medians alone decided
  /// may name another than `by_medians`.
  std::optional<KernelPath> best;

  /// Returns the best path as the times have it.
  std::optional<KernelPath> by_medians() const {
    const auto found = best_path(times);
    return found == times.end() ? std::nullopt : std::optional(found->path);
  }

  friend bool operator==(const LaunchTimes&, const LaunchTimes&) = default;
};

void describe(auto& visitor, MaybeConst<LaunchTimes> auto& paths) {
  visitor.newer("launch_paths", paths.times);
  visitor.field("best_path", paths.best);
}

}  // namespace kernwright
