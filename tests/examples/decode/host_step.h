#pragma once

#include "examples/decode/step.h"

namespace decode {

/// Does on the host what the kernels of a step do, one after the other, with results rounded to the
/// types of their tensors. All arguments are addresses of the host's memory.
void run_on_host(const std::vector<StepKernel>& step);

}  // namespace decode
