#pragma once

#include "model/candidate/candidate.h"
#include "model/candidate/device_profile.h"

namespace kernwright::detail {

/// The models behind `predict_us`, microseconds each.

/// Matrix products: the cycles of a k-stage by tensor cores, shared memory and L2, times the stages
/// and tiles of an SM, against the memory and the power limit. A template that derives
/// IN_FLIGHT_BYTES reads the operand with many rows once, and each block keeps that much of it in
/// flight. Its time is the bytes over the rate that this gives. Copies before the product are
/// added.
double predict_matmul_us(const Candidate& candidate, const DeviceProfile& profile);

/// Work that the memory limits: the bytes over the rate that the launch geometry can keep in
/// flight.
double predict_streaming_us(const Candidate& candidate, const DeviceProfile& profile);

/// Rows that groups of threads share, as `kernwright/rows/row.cuh` describes: the bytes over the rate
/// that the bytes in flight give, against instructions, powers and the blocks' own serial time. A
/// template without ROW_BYTES is taken for streaming work.
double predict_rows_us(const Candidate& candidate, const DeviceProfile& profile);

/// The main launch, which the others prepare or finish: the first of those with the most shared
/// memory.
const LaunchPlan& main_launch(const Candidate& candidate);

/// Blocks of the candidate's main launch that fit one SM together, by threads and shared memory,
/// and by registers where `registers_per_thread` is not 0. At least 1.
std::int64_t resident_blocks(const Candidate& candidate, const DeviceProfile& profile,
                             std::int64_t registers_per_thread);

}  // namespace kernwright::detail
