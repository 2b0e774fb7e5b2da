#pragma once

#include <span>
#include <vector>

#include "cli/page.h"
#include "cli/progress.h"
#include "service/serve/core.h"
#include "service/sweep/run_sweep.h"

namespace kernwright::cli {

/// Runs a sweep. Prints a row for each problem when it is done, and meanwhile how far
/// the sweep is. `watch` is of the search in this process, if there is one tuner.
std::vector<SweepResult> run_and_print(const ServiceCore& service,
                                       std::span<const Problem> normalized,
                                       std::span<const SweepTuner> tuners, const SearchWatch& watch,
                                       const Page& page);

}  // namespace kernwright::cli
