#pragma once

#include "compile/compile_pool.h"
#include "model/candidate/candidate.h"
#include "model/candidate/device_profile.h"
#include "model/result/traits.h"
#include "tuner/runner.h"

namespace kernwright {

/// A trial of the candidate, before anything was found out about it.
Trial make_trial(const Candidate& candidate, double predicted_us);

/// The same once its compile has ended: with what `check_compiled` says, and what the code needs.
Trial compiled_trial(const Candidate& candidate, double predicted_us, const CompileResult& compiled,
                     const DeviceProfile& profile);

/// Returns the traits that follow from the plan and the code of a candidate. The caller knows
/// whether it is the default or the incumbent, and the checks whether it is deterministic.
Traits traits_of(const Candidate& candidate, const CompiledKernel& kernel);

}  // namespace kernwright
