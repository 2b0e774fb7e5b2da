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
  /// Says that the process may be lost to a candidate. Finalists then also run against unmapped
  /// pages.
  bool disposable = false;
  /// Looks at the environment, besides the runner's own timers. It calls the function that it is
  /// given once it does not need the device any more.
  std::function<Audit(const std::function<void()>& released)> audit;
};

/// Checks that problems of the operation can be measured under the policy. Errors:
/// `invalid_argument`, with the reason why not.
Result<void> check_policy(const MeasurePolicy& policy, const Operation& operation);

/// Makes a `Runner` on a `Device` of this process. It allocates the problem's buffer sets
/// (`BufferSets`), draws the inputs, and computes the reference. Nothing is allocated between
/// samples. Inputs and reference are the same for every candidate. Errors: the device's; the errors
/// of `check_policy`.
Result<std::unique_ptr<Runner>> open_device_runner(Device& device, DataOps& data_ops,
                                                   const BoundProblem& problem,
                                                   const Catalog& catalog, CompilePool& pool,
                                                   const DeviceRunnerOptions& options);

}  // namespace kernwright
