#pragma once

#include "model/candidate/candidate.h"
#include "model/candidate/device_profile.h"

namespace kernwright {

/// The floor for a problem on a device: the larger of flops over the arithmetic rate and bytes over
/// the memory rate, in microseconds.
double roofline_us(const Operation& operation, const Problem& normalized,
                   const DeviceProfile& profile);

/// Predicted time of a candidate in microseconds. It orders candidates and never decides between
/// measured ones. Models by operation (matmul: tile, wave and L2 terms; rows: bytes and occupancy);
/// an operation without one is predicted from the roofline and its launch geometry.
double predict_us(const Candidate& candidate, const DeviceProfile& profile);

}  // namespace kernwright
