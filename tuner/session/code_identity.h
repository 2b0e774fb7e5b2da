#pragma once

#include "compile/compile_request.h"
#include "model/candidate/candidate.h"
#include "support/hash.h"

namespace kernwright {

/// What a candidate does on the device: its bits and how they are launched. Candidates with equal
/// ones need no second measurement.
Digest code_identity(const Candidate& candidate, const CompiledKernel& kernel);

}  // namespace kernwright
