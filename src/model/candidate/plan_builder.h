#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "model/candidate/candidate.h"
#include <kernwright/result.h>

namespace kernwright {

// Limits that are the same on all supported architectures: CUDA C++ Programming Guide, "Technical
// Specifications per Compute Capability".
inline constexpr std::int64_t kMaxThreadsPerBlock = 1024;
inline constexpr std::array<std::int64_t, 3> kMaxBlock{1024, 1024, 64};
inline constexpr std::array<std::int64_t, 3> kMaxGrid{2147483647, 65535, 65535};

// Limits of cuTensorMapEncodeTiled without interleave (CUDA driver API reference).
inline constexpr std::int64_t kMaxMapExtent = std::int64_t{1} << 32;
inline constexpr std::int64_t kMapAlignment = 16;  ///< of addresses and strides, bytes
inline constexpr std::int64_t kMapStrideEnd = std::int64_t{1} << 40;  ///< bytes, beyond the largest

/// Far beyond any device, and so small that sums of sizes cannot overflow.
inline constexpr std::int64_t kMaxWorkspaceBytes = std::int64_t{1} << 48;

}  // namespace kernwright

namespace kernwright::detail {

/// Does the same as `applies` for a problem whose scope is known already.
Result<void> applies_in(const KernelTemplate& kernel_template, const Scope& scope,
                        const DeviceProfile& profile);

/// Makes a plan of the tensors and scalars of a problem, which are the same in the plans of all its
/// candidates.
Result<ExecutionPlan> plan_tensors(const BoundProblem& problem);

/// Calls `visit` with every expression of a template that `make_plan` may evaluate.
void visit_launches(const KernelTemplate& kernel_template,
                    const std::function<void(const Expression&)>& visit);

/// Adds tensor maps, workspaces and launches to `tensors`. They are evaluated and checked against
/// the limits of CUDA and of the device.
Result<ExecutionPlan> make_plan(const KernelTemplate& kernel_template, const Operation& operation,
                                Result<ExecutionPlan> tensors, const ValueSource& values,
                                const DeviceProfile& profile);

}  // namespace kernwright::detail
