#pragma once

#include <optional>
#include <string>

#include "compile/compile_request.h"
#include "model/candidate/candidate.h"

namespace kernwright {

/// The reason why compiled code cannot be launched as a plan says.
struct Misfit {
  const LaunchPlan* launch = nullptr;  ///< of the plan
  std::string what;                    ///< names the kernel and both values
};

/// Compares the launches of a plan with the kernels of a cubin: their names, the number and the
/// sizes of their parameters, and their launch bounds. Returns nullopt if they fit. Bits that are
/// not an ELF file are left to the driver, which refuses them.
std::optional<Misfit> find_misfit(const ExecutionPlan& plan, const CompiledKernel& kernel);

}  // namespace kernwright
