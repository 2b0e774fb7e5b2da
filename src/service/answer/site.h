#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cache/layers/tiered_cache.h"
#include "cache/records/record.h"
#include "device/device.h"
#include "model/candidate/candidate.h"
#include "model/candidate/device_profile.h"
#include "model/catalog/catalog.h"
#include "model/operation/bound_problem.h"
#include "model/operation/ranged_problem.h"
#include "support/processes/process_exit.h"
#include <kernwright/problem.h>
#include <kernwright/result.h>
#include <kernwright/service.h>

namespace kernwright {

/// Everything that a service knows from its opening on: the operations, the GPU or SKU that
/// it works for, and its cache.
struct Site {
  std::shared_ptr<const Catalog> catalog;
  DeviceProfile profile;
  DeviceIdentity identity;  ///< empty without a GPU
  bool has_device = false;
  MeasurePolicy policy;
  TieredCache cache;
  std::function<void(LogLevel, std::string_view)> log;  ///< may be empty

  /// Is silent while the process exits, when what the user's function uses may be gone.
  void say(LogLevel level, std::string_view message) const {
    if (const BeforeExit says; log && says) log(level, message);
  }

  /// Errors: `invalid_argument` if the operation does not exist or does not take the problem, or if
  /// its tensors do not fit in the GPU's memory.
  Result<BoundProblem> bind(const Problem& problem) const;
  /// Does the same for a problem with ranges, of whose sizes some may not fit. Errors: from
  /// `RangedProblem::bind`.
  Result<RangedProblem> bind_family(const Problem& problem) const;
  /// Errors: `invalid_argument` if the tensors do not fit in the GPU's memory.
  Result<void> check_memory(const BoundProblem& problem) const;
  /// Returns whether they fit.
  bool has_room_for(double bytes) const;
  RecordKey key(const BoundProblem& problem) const { return key(problem.text()); }
  /// Returns the same for a canonical text.
  RecordKey key(std::string problem) const;
  /// Makes a candidate from a template's name and some of its parameters; the others take their
  /// defaults. Derived values that kernels are compiled for may be among them.
  Result<Candidate> candidate(const BoundProblem& problem, std::string_view kernel_template,
                              const ParameterValues& parameters) const;
  /// Does the same for some size of a family. Errors: from its last sizes, if none of many takes
  /// the candidate.
  Result<Candidate> candidate(const RangedProblem& family, std::string_view kernel_template,
                              const ParameterValues& parameters) const;
};

}  // namespace kernwright
