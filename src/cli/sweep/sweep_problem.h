#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cache/records/record.h"
#include "service/serve/core.h"
#include <kernwright/result.h>

namespace kernwright::cli {

/// How a sweep treats each of its problems.
struct SweepSettings {
  double seconds = 30;   ///< of tuning
  bool recheck = false;  ///< what another environment measured is due
};

/// How one problem of a sweep ended.
struct SweepResult {
  std::optional<TuningRecord> record;
  bool found = false;        ///< the record was in the cache
  bool tuned_again = false;  ///< there was one of trust C
  std::string unstored;      ///< why the cache does not have the record; empty: it has
  std::string error;         ///< where there is no record
};

/// Tunes or predicts the problem, which is normalised, unless the cache has its record. Shows
/// progress unless `quiet`.
SweepResult sweep_problem(ServiceCore& service, const Problem& problem,
                          const SweepSettings& settings, bool quiet);

/// One line of JSON, and back, the record bit by bit. Errors: `corrupt` naming the field.
std::string to_json(const SweepResult& result);
Result<SweepResult> parse_sweep_result(std::string_view json);

}  // namespace kernwright::cli
