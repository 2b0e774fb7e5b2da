#pragma once

#include "compile/compile_request.h"
#include "model/candidate/candidate.h"
#include "support/hash.h"

namespace kernwright {

/// A digest of what a candidate does on the device: of its bits and of how they are launched. A
/// candidate whose digest was seen before needs no measurement of its own.
Digest code_identity(const Candidate& candidate, const CompiledKernel& kernel);

}  // namespace kernwright
