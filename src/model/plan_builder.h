#pragma once

#include "model/candidate.h"
#include <kernwright/result.h>

namespace kernwright::detail {

/// `applies` with the problem's scope at hand.
Result<void> applies_in(const KernelTemplate& kernel_template, const Scope& scope,
                        const DeviceProfile& profile);

/// Evaluates tensors, tensor maps, workspaces and launches in `scope`, and checks them against the
/// limits of CUDA and of the device.
Result<ExecutionPlan> make_plan(const KernelTemplate& kernel_template, const Operation& operation,
                                const Problem& normalized, const Scope& scope,
                                const DeviceProfile& profile);

}  // namespace kernwright::detail
