#pragma once

#include <string>

#include "cache/records/record.h"

namespace kernwright {

/// Names the rule that chose the winner among finalists that no time told apart, as the end of a
/// sentence: "it needs fewer registers". Empty if nothing was tied with the winner.
std::string tie_rule(const TuningRecord& record);

}  // namespace kernwright
