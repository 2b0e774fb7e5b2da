#pragma once

#include "model/candidate/candidate.h"
#include "model/candidate/device_profile.h"

namespace kernwright {

/// Returns the arithmetic rate that a problem may hope for: the tensor cores' for the narrowest
/// input. If that is wider than 16 bits, the rate of fp32, or of tf32 if the problem allows it.
/// It does not count whether a kernel can use them.
double arithmetic_tflops(const BoundProblem& problem, const DeviceProfile& profile);

/// Returns the roofline for a problem on a device, in microseconds: the largest of flops over the
/// arithmetic rate, bytes over the memory rate and special functions over theirs.
double roofline_us(const BoundProblem& problem, const DeviceProfile& profile);

/// Returns the predicted time of a candidate in microseconds. It orders candidates and never
/// decides between measured ones. One model serves all templates: it sees what the manifest's
/// "cost" demands, the operation's bytes, the launches and the device's rates, and no name of a
/// template. If the manifest says nothing, the operation's flops and bytes are spread evenly over
/// the blocks.
double predict_us(const Candidate& candidate, const DeviceProfile& profile);

}  // namespace kernwright
