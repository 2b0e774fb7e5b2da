#pragma once

#include <string>

#include "model/operation/bound_problem.h"
#include "model/operation/launch_spec.h"

namespace kernwright {

enum class KernelUse { candidate, reference, input };

/// Returns the parameters of the kernel of a launch, in the order of its arguments:
/// "const kernwright::config::dtype_t* __restrict__ x, int n".
///
/// A candidate's pointer is const if the problem's tensor is an input, and `__restrict__` unless
/// the tensor may share memory with another. A reference writes no tensor, and an input kernel may
/// write each.
std::string parameter_list(const LaunchSpec& launch, const BoundProblem& problem, KernelUse use);

}  // namespace kernwright
