#pragma once

#include <span>
#include <string>
#include <string_view>

#include "bench/boundaries/lab.h"
#include "bench/common/bench_json.h"
#include <kernwright/result.h>

namespace kernwright::boundaries {

/// A question about the boundaries between the steps of a chain.
struct Experiment {
  std::string_view name;
  std::string_view question;
  /// Prints a table of microseconds, and adds a row for each arm.
  Result<void> (*run)(Lab& lab, int rounds, BenchJson& json);
};

std::span<const Experiment> experiments();

/// The experiments of this name; all for an empty one. Errors: `invalid_argument` with all names.
Result<std::span<const Experiment>> choose_experiments(std::string_view name);

// One file has those of whole chains, another those of single questions.
Result<void> run_steps(Lab& lab, int rounds, BenchJson& json);
Result<void> run_barrier(Lab& lab, int rounds, BenchJson& json);
Result<void> run_period(Lab& lab, int rounds, BenchJson& json);
Result<void> run_early(Lab& lab, int rounds, BenchJson& json);
Result<void> run_cascade(Lab& lab, int rounds, BenchJson& json);
Result<void> run_stream(Lab& lab, int rounds, BenchJson& json);
Result<void> run_consume(Lab& lab, int rounds, BenchJson& json);

}  // namespace kernwright::boundaries
