#pragma once

#include <string>

#include "cache/records/record.h"
#include "compile/compile_pool.h"
#include "model/candidate/device_profile.h"
#include "model/catalog/catalog.h"
#include "model/operation/bound_problem.h"

namespace kernwright {

/// Inputs of a session or a prediction, and the parts of its record that it does not find itself.
/// The references outlive it.
struct TuningInput {
  const Catalog& catalog;
  BoundProblem problem;
  const DeviceProfile& profile;
  /// If its cache keeps compiled kernels, the record's artifacts are in that cache.
  CompilePool& pool;
  RecordKey key;
  RecordEnvironment environment;  ///< but the digest of the winner's template
  std::string device_uuid = {};   ///< of the GPU that measures; empty for a prediction
};

/// Puts into a record, whose winner is known, what it says of problem, device and code, and when it
/// was made.
void complete(TuningRecord& record, const TuningInput& input);

}  // namespace kernwright
