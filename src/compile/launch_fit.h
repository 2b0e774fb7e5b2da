#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "compile/compile_pool.h"
#include "compile/compile_request.h"
#include "model/candidate/candidate.h"
#include "model/candidate/device_profile.h"
#include "model/result/trial.h"

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

/// Code that spills more is not loaded, whatever its manifest allows.
inline constexpr std::int64_t kMostSpillBytes = 256;

/// Says why a compiled candidate is not worth loading: it did not compile, spills more than its
/// manifest or `kMostSpillBytes` allows, or does not fit its launches or the device. `ok`
/// otherwise, with the compiler's warnings as detail.
TrialStep check_compiled(const Candidate& candidate, const CompileResult& compiled,
                         const DeviceProfile& profile);

}  // namespace kernwright
