#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cache/records/family_record.h"
#include "cache/records/record.h"
#include "service/serve/core.h"
#include "tuner/search/search.h"
#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright {

/// How a sweep treats each of its problems.
struct SweepSettings {
  std::optional<double> seconds = {};  ///< of tuning; else what the tuner takes
  bool recheck = false;                ///< what another environment measured is due
};

/// How one problem of a sweep ended.
struct SweepResult {
  std::optional<TuningRecord> record = {};
  std::optional<FamilyHead> family = {};  ///< where the problem has ranges
  bool found = false;                     ///< the record was in the cache
  bool tuned_again = false;               ///< there was one of trust C
  std::string unstored = {};              ///< why the cache does not have the record; empty: it has
  std::string error = {};                 ///< where there is no record
};

/// Tunes a problem, or predicts for it.
using SweepTune =
    std::function<Result<TuningResult>(const Problem& problem, TuningOptions options)>;

/// Gets a record from `tune` for the problem, which is normalised, unless the cache has one.
SweepResult sweep_problem(const ServiceCore& service, const Problem& problem,
                          const SweepSettings& settings, const SweepTune& tune);

/// Returns what the cache has of a problem with ranges that settles it.
std::optional<TieredCache::FoundFamily> settled_family(const ServiceCore& service,
                                                       const Problem& family, bool recheck);

/// Tunes a problem with ranges, unless the cache has a record that settles it.
SweepResult sweep_family(ServiceCore& service, const Problem& family,
                         const SweepSettings& settings);

/// `TuningDesk::compile_ahead` of the first of the problems that are due. They are normalised. Call
/// it when another one goes into its finals: then the GPU need not wait for the compilers when the
/// next one's turn comes.
void compile_for_next(ServiceCore& service, std::span<const Problem> problems,
                      const SweepSettings& settings);

/// One line of JSON, and back, records bit by bit. Errors: `corrupt` naming the field.
std::string to_json(const SweepResult& result);
Result<SweepResult> parse_sweep_result(std::string_view json);

}  // namespace kernwright
