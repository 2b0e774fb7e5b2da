#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "device/device.h"
#include "model/candidate.h"
#include <kernwright/result.h>

namespace kernwright {

/// A cubin loaded for the execution plan of one problem, launchable from any thread on any stream
/// of the caller's current context: functions resolved, attributes set, tensor maps' constant parts
/// encoded. A launch allocates nothing and takes no lock: it copies the tensor maps to its stack
/// and patches the addresses. Immutable.
class Launcher {
 public:
  /// Loads for GPU `ordinal`. Errors: `unavailable` without a driver; `invalid_argument` for a plan
  /// that the cubin or the GPU cannot carry, with both values; `device` with the driver's words.
  static Result<std::unique_ptr<Launcher>> load(std::string_view cubin, const ExecutionPlan& plan,
                                                int ordinal = 0);
  virtual ~Launcher() = default;

  virtual const ExecutionPlan& plan() const = 0;

  /// Enqueues the plan's launches on `stream` (a CUstream). `tensors` and `scalars` follow the
  /// plan's order; `workspace` must hold plan().workspace_bytes() and may be 0 where that is 0.
  virtual Result<void> launch(void* stream, std::span<const DevicePointer> tensors,
                              std::span<const double> scalars, DevicePointer workspace) const = 0;
};

}  // namespace kernwright
