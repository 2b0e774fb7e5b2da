#pragma once

#include "model/candidate.h"
#include "model/device_profile.h"

namespace kernwright::detail {

/// The models behind `predict_us`, microseconds each.

/// Matrix products: cycles per k-stage from the tensor cores, shared memory and L2, times stages
/// and tiles per SM, against the memory and the power limit. Of a template that derives
/// IN_FLIGHT_BYTES, which reads b once and keeps that much of it under way per block: the bytes
/// over the rate that this gives.
double predict_matmul_us(const Candidate& candidate, const DeviceProfile& profile);

/// Work limited by memory: bytes over the rate that the launch geometry can keep in flight.
double predict_streaming_us(const Candidate& candidate, const DeviceProfile& profile);

/// Blocks of the candidate's first launch that fit one SM together, by threads and shared memory,
/// and by registers where `registers_per_thread` is not 0. At least 1.
std::int64_t resident_blocks(const Candidate& candidate, const DeviceProfile& profile,
                             std::int64_t registers_per_thread);

}  // namespace kernwright::detail
