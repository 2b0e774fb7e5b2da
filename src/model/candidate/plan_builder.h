#pragma once

#include <functional>

#include "model/candidate/candidate.h"
#include <kernwright/result.h>

namespace kernwright::detail {

/// Does the same as `applies` for a problem whose scope is known already.
Result<void> applies_in(const KernelTemplate& kernel_template, const Scope& scope,
                        const DeviceProfile& profile);

/// Makes a plan of the tensors and scalars of a problem, which are the same in the plans of all its
/// candidates.
Result<ExecutionPlan> plan_tensors(const BoundProblem& problem);
/// Makes the same from the names of a problem.
Result<ExecutionPlan> plan_tensors(const Operation& operation, const ValueSource& values);

/// Calls `visit` with every expression of a template that `make_plan` may evaluate.
void visit_launches(const KernelTemplate& kernel_template,
                    const std::function<void(const Expression&)>& visit);

/// Adds tensor maps, workspaces and launches to `tensors`. They are evaluated and checked against
/// the limits of CUDA and of the device.
Result<ExecutionPlan> make_plan(const KernelTemplate& kernel_template, const Operation& operation,
                                Result<ExecutionPlan> tensors, const ValueSource& values,
                                const DeviceProfile& profile);

}  // namespace kernwright::detail
