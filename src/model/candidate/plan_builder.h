#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>

#include "model/candidate/candidate.h"
#include <kernwright/result.h>

namespace kernwright::detail {

/// Does the same as `applies` for a problem whose scope is known already.
Result<void> applies_in(const KernelTemplate& kernel_template, const Scope& scope,
                        const DeviceProfile& profile);

/// Makes a plan of the tensors and scalars of a problem, which are the same in the plans of all its
/// candidates.
Result<ExecutionPlan> plan_tensors(const BoundProblem& problem);

/// The expressions of a template's workspaces, tensor maps and launches, by their address, placed
/// in the rows of values of the template's candidates.
using PlacedLaunches = std::unordered_map<const Expression*, PlacedExpression>;
PlacedLaunches place_launches(const KernelTemplate& kernel_template, const Scope& names);

/// The values of one candidate in such a row, with which plans are made faster than in a scope.
struct LaunchValues {
  const PlacedLaunches* placed = nullptr;  ///< null: all is evaluated in the scope
  std::span<const std::int64_t> row = {};
};

/// Adds tensor maps, workspaces and launches to `tensors`. They are evaluated in `scope` and
/// checked against the limits of CUDA and of the device.
Result<ExecutionPlan> make_plan(const KernelTemplate& kernel_template, const Operation& operation,
                                const Result<ExecutionPlan>& tensors, const Scope& scope,
                                const DeviceProfile& profile, const LaunchValues& values = {});

}  // namespace kernwright::detail
