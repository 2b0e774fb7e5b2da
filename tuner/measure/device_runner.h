#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "compile/compile_pool.h"
#include "device/device.h"
#include "model/catalog/catalog.h"
#include "tuner/data/data_ops.h"
#include "tuner/runner.h"
#include <kernwright/result.h>

namespace kernwright {

struct DeviceRunnerOptions {
  MeasurePolicy policy;
  std::uint64_t seed = 1;
  double sample_ms = 1.5;  ///< aimed-at length of one sample
  /// The process may be lost to a candidate: finalists also run against unmapped pages.
  bool disposable = false;
  /// What is known of the environment beside the runner's own timers. Calls what it is given when
  /// it does not need the device any more.
  std::function<Audit(const std::function<void()>& released)> audit;
};

/// Errors: `invalid_argument` where problems of the operation cannot be measured so, with the
/// reason.
Result<void> check_policy(const MeasurePolicy& policy, const Operation& operation);

/// A `Runner` on a `Device` of this process. On opening it allocates the buffer sets of the problem
/// (what they do not share is beyond 3x the L2, unless the policy is warm), draws the inputs, and
/// computes the reference; nothing is allocated between samples. Inputs and reference are the same
/// for every candidate. Errors: those of `check_policy` too.
Result<std::unique_ptr<Runner>> open_device_runner(Device& device, DataOps& data_ops,
                                                   const Operation& operation,
                                                   const Problem& normalized,
                                                   const Catalog& catalog, CompilePool& pool,
                                                   const DeviceRunnerOptions& options);

}  // namespace kernwright
