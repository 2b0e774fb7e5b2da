#pragma once

#include "model/candidate/candidate.h"
#include "model/candidate/device_profile.h"

namespace kernwright::detail {

/// The models behind `predict_us`, microseconds each.

/// Matrix products: cycles per k-stage from the tensor cores, shared memory and L2, times stages
/// and tiles per SM, against the memory and the power limit. Of a template that derives
/// IN_FLIGHT_BYTES, which reads the operand with many rows once and keeps that much of it under way
/// per block: the bytes over the rate that this gives. Copies in front of the product are added.
double predict_matmul_us(const Candidate& candidate, const DeviceProfile& profile);

/// Work limited by memory: bytes over the rate that the launch geometry can keep in flight.
double predict_streaming_us(const Candidate& candidate, const DeviceProfile& profile);

/// Rows shared by groups of threads (what `kernwright/row.cuh` describes): the bytes over the rate
/// that what is on its way gives, against instructions, powers and the blocks' own serial time. Of
/// a template without ROW_BYTES, as streaming work.
double predict_rows_us(const Candidate& candidate, const DeviceProfile& profile);

/// The launch that the others prepare or finish: of those with the most shared memory the first.
const LaunchPlan& main_launch(const Candidate& candidate);

/// Blocks of the candidate's main launch that fit one SM together, by threads and shared memory,
/// and by registers where `registers_per_thread` is not 0. At least 1.
std::int64_t resident_blocks(const Candidate& candidate, const DeviceProfile& profile,
                             std::int64_t registers_per_thread);

}  // namespace kernwright::detail
