#pragma once

#include <string>
#include <string_view>

#include "model/candidate/candidate.h"

namespace kernwright {

/// The element type's name in kernels, "kernwright::bf16", as <kernwright/math/types.cuh> declares
/// it.
std::string_view cuda_type(DType dtype);

/// The text of the generated header `kernwright/config.cuh` of a candidate: parameters bound at
/// compile time, constant dims, flags and dtypes as constants; rules and derived values pasted with
/// `#line` back to the manifest, and each pasted derived value asserted equal to the host's.
std::string config_header(const Candidate& candidate);

/// The same for the operation's reference kernel: flags and dtypes only.
std::string reference_config_header(const Operation& operation, const Problem& normalized);

}  // namespace kernwright
