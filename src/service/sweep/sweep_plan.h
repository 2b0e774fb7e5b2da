#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "service/serve/core.h"

namespace kernwright {

/// The plan of a sweep.
struct SweepPlan {
  struct Row {
    Problem problem;              ///< normalised
    bool due = true;              ///< false: it has a record already, or is impossible
    std::int64_t candidates = 0;  ///< 0 where it is not due: then nobody enumerates them
    std::int64_t compiles = 0;    ///< candidates that differ in what is compiled
    std::string impossible;       ///< why no template runs it; empty: one does
  };
  std::vector<Row> rows;

  std::int64_t due() const;
  std::int64_t impossible() const;
  std::int64_t candidates() const;
  std::int64_t compiles() const;

  /// How long the sweep takes at most, with `seconds_per_problem` on each of `gpus` devices, if
  /// each search uses up its budget.
  double seconds(double seconds_per_problem, int gpus) const;
};

/// Plans a sweep of the problems `normalized`. After each problem it calls `progress` with the
/// number of those that were planned, since the whole space of a problem that is due is enumerated.
/// `recheck` is that of `sweep_state`.
SweepPlan plan_sweep(const ServiceCore& service, const std::vector<Problem>& normalized,
                     bool recheck, const std::function<void(std::size_t)>& progress);

}  // namespace kernwright
