#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/records/family_record.h"
#include "cache/records/override.h"
#include "compile/compile_pool.h"
#include "model/candidate/device_profile.h"
#include "model/catalog/catalog.h"
#include "model/operation/ranged_problem.h"
#include "tuner/runner.h"
#include <kernwright/result.h>

namespace kernwright {

/// The steps of a family's search that its owner takes.
struct FamilySteps {
  /// Opens the runner of a problem of the family. The runner before is gone.
  std::function<Result<std::unique_ptr<Runner>>(const BoundProblem&)> open;
  /// Tunes a problem of the family in so many seconds.
  std::function<Result<TuningRecord>(const BoundProblem&, double seconds)> tune;
};

struct FamilyProgress {
  std::string_view stage;  ///< for people, such as "tuning sizes"
  int done = 0;
  int of = 0;
  int kernels = 0;  ///< that are measured
  double seconds = 0;
};

struct FamilyOptions {
  double seconds = 90;
  std::uint64_t random_seed = 1;
  std::function<void(const FamilyProgress&)> progress;
  std::function<double()> clock_seconds;  ///< monotonic; empty: the steady clock
};

/// Inputs of a family's search, and the parts of its record that it does not find itself. The
/// references outlive it.
struct FamilyInput {
  const Catalog& catalog;
  RangedProblem family;
  const DeviceProfile& profile;
  CompilePool& pool;
  RecordKey key;
  RecordEnvironment environment;
  std::string device_uuid = {};
  Decisions decisions = {};  ///< on the family; a pin does not restrict the search
};

/// Tunes a few sizes of the family, measures their finalists and the first choices of the cost
/// model at many sizes, checked at each, and chooses kernels and a table from these times. Then
/// measures at sizes that are drawn anew, and, while there is time, tunes where the family is slow.
/// Errors: `not_found` if no size of the ranges is accepted, or nothing could be measured; the
/// errors of `steps`.
Result<FamilyRecord> tune_family(const FamilyInput& input, const FamilySteps& steps,
                                 FamilyOptions options);

}  // namespace kernwright
