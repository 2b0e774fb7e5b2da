#pragma once

#include <string>
#include <string_view>

#include "model/candidate/candidate.h"

namespace kernwright {

/// Returns the text of the generated header `kernwright/config.cuh` of a candidate. It has
/// constants for compile-time parameters, constant dims, flags and dtypes. It has the pasted rules
/// and derived values, with `#line` back to the manifest, and asserts that each pasted derived
/// value equals the host's.
std::string config_header(const Candidate& candidate);

/// Returns the header for the operation's reference kernel, which has flags and dtypes only.
std::string reference_config_header(const BoundProblem& problem);

}  // namespace kernwright
