#include <algorithm>
#include <cmath>

#include "tuner/cost/cost_models.h"

namespace kernwright::detail {
namespace {

/// Period of an empty kernel in a graph.
constexpr double kLaunchUs = 1.6;
/// Share of the datasheet's memory rate that a copy reaches.
constexpr double kMemoryShare = 0.9;
/// Bytes that have to be in flight on one SM to keep the memory busy (rate times latency).
constexpr double kBytesInFlight = 32 * 1024;
/// Bytes that one thread keeps in flight at most.
constexpr double kBytesPerThread = 64;
/// What a multiprocessor draws at most where few do, over its share of the memory's rate: 64 bytes
/// a clock on an H200.
constexpr double kLoneShare = 3.3;

double value_or(const Scope& scope, std::string_view name, double otherwise) {
  const auto value = scope.find(name);
  return value ? static_cast<double>(*value) : otherwise;
}

double product(const Extent3& extent) {
  return static_cast<double>(extent[0]) * extent[1] * extent[2];
}

}  // namespace

const LaunchPlan& main_launch(const Candidate& candidate) {
  const auto& launches = candidate.plan.launches;
  return *std::max_element(
      launches.begin(), launches.end(),
      [](const LaunchPlan& a, const LaunchPlan& b) { return a.dynamic_smem < b.dynamic_smem; });
}

std::int64_t resident_blocks(const Candidate& candidate, const DeviceProfile& profile,
                             std::int64_t registers_per_thread) {
  const LaunchPlan& launch = main_launch(candidate);
  const auto threads = std::max<std::int64_t>(static_cast<std::int64_t>(product(launch.block)), 1);
  std::int64_t blocks = profile.max_threads_per_sm / threads;
  if (profile.max_blocks_per_sm > 0) blocks = std::min(blocks, profile.max_blocks_per_sm);
  // The driver keeps 1 KB of shared memory per block for itself.
  blocks = std::min(blocks, profile.smem_per_sm / (std::int64_t{launch.dynamic_smem} + 1024));
  if (registers_per_thread > 0) {
    blocks = std::min(blocks, profile.registers_per_sm / (registers_per_thread * threads));
  }
  return std::max<std::int64_t>(blocks, 1);
}

double predict_streaming_us(const Candidate& candidate, const DeviceProfile& profile) {
  const Scope& scope = candidate.scope;
  const auto evaluated = candidate.operation->bytes.evaluate(scope);
  const auto flops = candidate.operation->flops.evaluate(scope);
  double bytes = evaluated ? static_cast<double>(evaluated.value()) : 0;

  const LaunchPlan& launch = main_launch(candidate);
  const double threads = product(launch.block);
  const double blocks = product(launch.grid);
  const double row_registers = value_or(scope, "ROW_REGISTERS", 0);
  const auto resident = static_cast<double>(resident_blocks(
      candidate, profile, row_registers > 0 ? static_cast<std::int64_t>(row_registers) + 24 : 0));
  const auto sms = static_cast<double>(std::max<std::int64_t>(profile.sm_count, 1));

  // What does not fit the registers is read twice, the second time mostly from the L2.
  const double steps = value_or(scope, "STEPS", 1);
  const double kept = value_or(scope, "KEPT", steps);
  if (steps > kept) bytes *= 1 + 0.3 * (steps - kept) / steps;

  const double blocks_on_sm = std::min(resident, std::ceil(blocks / sms));
  const double per_thread = std::min(bytes / (blocks * threads), kBytesPerThread);
  const double busy_sms = std::min(blocks, sms) / sms;
  const double in_flight =
      std::min(kLoneShare, blocks_on_sm * threads * per_thread / kBytesInFlight);
  const double rate = std::clamp(in_flight * busy_sms, 0.01, 1.0);

  // A last wave that is not full costs part of its emptiness: its blocks also run alone and faster.
  const double waves = std::max(blocks / (resident * sms), 1e-3);
  const double tail = waves > 1 ? 1 + 0.15 * (std::ceil(waves) / waves - 1) : 1;
  const double vector = 1 + 0.05 * (16 / value_or(scope, "VECTOR_BYTES", 16) - 1);
  const double barrier = threads > 512 ? 1.02 : 1;

  const double memory_us =
      bytes / (kMemoryShare * profile.dram_gbps * 1e3) / rate * tail * vector * barrier;
  const double arithmetic_us =
      flops && profile.fp32_tflops > 0
          ? static_cast<double>(flops.value()) / (0.5 * profile.fp32_tflops * 1e6)
          : 0;
  return kLaunchUs * static_cast<double>(candidate.plan.launches.size()) +
         std::max(memory_us, arithmetic_us);
}

}  // namespace kernwright::detail
