#include <algorithm>
#include <cmath>

#include "tuner/cost/cost_models.h"

namespace kernwright::detail {
namespace {

// Read on an H200; memory and clock rates are the profile's.

/// What the smallest kernel takes in a graph, with the first load's latency.
constexpr double kRampUs = 1.5;
/// Less of it where next to nothing is written.
constexpr double kReadOnlyRampUs = 1.0;
/// Share of the datasheet's memory rate that the best streams reach: 4.35 of 4.8 TB/s.
constexpr double kMemoryShare = 0.906;
/// Latency of an idle memory; under way for 1.4 times as long where loads queue.
constexpr double kLatencyNs = 550;
constexpr double kQueueing = 1.4;
/// How sharply the rate saturates with the bytes on their way.
constexpr double kSaturation = 1.8;
/// A reduction: fixed, per halving of the group, and over a cluster.
constexpr double kReduceNs = 60;
constexpr double kReducePerHalvingNs = 15;
constexpr double kClusterNs = 320;
/// A block's start, end and dependent instructions beside its loads and its reduction.
constexpr double kBlockNs = 55;
/// Registers of a thread beside its part of the row, where it is read to be combined alone and
/// where it is written too: then 16-bit values lie unpacked beside their weights while they are
/// worked on.
constexpr std::int64_t kReadRegisters = 28;
constexpr std::int64_t kWrittenRegisters = 16;
/// Rings fall behind blocks that come and go: reads and writes of all multiprocessors keep step;
/// and for every further stage.
constexpr double kRingShare = 0.025;
constexpr double kStageShare = 0.04;
/// Groups of several warps each in one block begin and end together.
constexpr double kSharedBlockShare = 0.57;
/// What a multiprocessor loses whose only block computes; shared among its blocks.
constexpr double kAloneShare = 0.05;
/// Rate at which all multiprocessors get rows and weights from the L2, and what a row waits for
/// weights that are not asked for early.
constexpr double kL2BytesPerNs = 7400;
constexpr double kWeightNs = 30;
/// Fitted: rows slow down with the bytes of their weights divided by this, as if that share of the
/// rows were fetched again. It is not: with a share of 1 the measured traffic of the L2 is only 12
/// % more than the rows. So the term has no physical meaning.
constexpr double kL1WeightBytes = 131072;
/// Co-scheduling and skew, per doubling of a cluster: of blocks that come and go, and of rings.
constexpr double kClusterShare = 0.055;
constexpr double kRingClusterShare = 0.012;
/// What of an empty last wave is lost: its blocks run alone and faster.
constexpr double kTailShare = 0.05;
/// Share of a second reading that L2 does not hide.
constexpr double kReadTwice = 0.3;

/// Clocks per element and lane instruction of a thread that runs with few others.
constexpr double kElementClocks = 1.96;
/// Lane instructions per access to memory, a load and a store each.
constexpr double kPerAccess = 6;
/// Lane instructions and powers per element, by operation: 16-bit values, with their conversion;
/// and what a row takes beside loads and a plain sum: writing, merging pairs and moments.
struct Work {
  std::string_view operation;
  double instructions;
  double powers;
  double row_ns;
};
constexpr Work kWork[] = {
    {"rmsnorm", 6, 0, 0}, {"layernorm", 6, 0, 435}, {"softmax", 7, 1, 300}, {"reduce", 2, 0, 0}};
constexpr double kLanes = 128;  ///< of one multiprocessor; powers take 8 times as long
constexpr double kPowerLanes = 16;

double value(const Scope& scope, std::string_view name) {
  const auto found = scope.find(name);
  return found ? static_cast<double>(*found) : 0;
}

double has(const Scope& scope, std::string_view flag, std::string_view setting) {
  const auto found = scope.find(flag);
  return found && found == scope.find(setting) ? 1 : 0;
}

double fourth(double x) { return x * x * x * x; }

}  // namespace

double predict_rows_us(const Candidate& candidate, const DeviceProfile& profile) {
  const Scope& scope = candidate.scope;
  const auto counted = candidate.operation->bytes.evaluate(scope);
  if (!counted || !scope.find("ROW_BYTES")) return predict_streaming_us(candidate, profile);
  const auto sms = static_cast<double>(std::max<std::int64_t>(profile.sm_count, 1));
  const double threads_per_row = value(scope, "THREADS_PER_ROW");
  const double cluster = value(scope, "CLUSTER");
  const double stages = value(scope, "STAGES");
  const double kept = value(scope, "KEPT");
  const double steps = value(scope, "STEPS");
  const double elements = value(scope, "rows") * value(scope, "columns");

  const double loaded = value(scope, "rows") * value(scope, "ROW_BYTES") * value(scope, "STREAMS");
  auto bytes = static_cast<double>(counted.value());
  const bool writes = bytes > 1.5 * loaded / value(scope, "STREAMS");
  if (steps > kept && writes) bytes += kReadTwice * loaded * (steps - kept) / steps;

  // What is on its way: of a block that loads once, for a part of its life.
  const double tiles = value(scope, "row_blocks") * cluster;
  // A persistent grid is as large as MIN_BLOCKS; other blocks also fill what registers are left.
  const std::int64_t least = std::max<std::int64_t>(*scope.find("MIN_BLOCKS"), 1);
  const auto threads = static_cast<std::int64_t>(value(scope, "THREADS"));
  const double weights = has(scope, "weight", "weight_scale") + has(scope, "bias", "bias_add");
  const double rows_at_once = std::max(value(scope, "ROWS_AT_ONCE"), 1.0);
  const double words = std::max(value(scope, "VECTOR_BYTES") / 4, 1.0);
  const double unpacked = value(scope, "dtype_bytes") == 2 ? 2 : 1;
  const auto needed =
      writes ? static_cast<std::int64_t>(kept * words * (unpacked * rows_at_once + weights)) +
                   kWrittenRegisters
             : static_cast<std::int64_t>(value(scope, "ROW_REGISTERS")) + kReadRegisters;
  const auto registers = std::min(needed, profile.registers_per_sm / (least * threads));
  const std::int64_t fitting = resident_blocks(candidate, profile, registers);
  const auto resident = static_cast<double>(stages > 0 ? std::min(fitting, least) : fitting);
  const double live = std::min(resident, std::max(1.0, tiles / sms));
  const double groups = value(scope, "ROWS_PER_BLOCK");
  const double rows_per_block = groups * rows_at_once;
  const double block_bytes =
      rows_per_block * value(scope, "ROW_BYTES") * value(scope, "STREAMS") / cluster;
  const double reduce_ns =
      kReduceNs + kReducePerHalvingNs * std::log2(threads_per_row) + (cluster > 1 ? kClusterNs : 0);
  const double load_ns = kQueueing * kLatencyNs;
  // A ring is always full: a place is refilled as soon as its row is in registers.
  const double in_flight =
      live * block_bytes *
      (stages > 0 ? stages
                  : std::min(1.0, kept / steps) * load_ns / (load_ns + reduce_ns + kBlockNs));
  const double peak = kMemoryShare * profile.dram_gbps;  // bytes per ns
  // Stores ride along with the loads that the latency bounds.
  const double x = in_flight * std::min(sms, tiles) / kLatencyNs / peak * bytes / loaded;
  const double rate = peak * x / std::pow(1 + std::pow(x, kSaturation), 1 / kSaturation);
  const double memory_ns = bytes / rate;

  const double used = std::min(sms, tiles);
  const double clock_ghz = profile.sm_clock_mhz / 1e3;
  Work work{"", 7, 0, 400};
  for (const Work& known : kWork) {
    if (known.operation == candidate.operation->name) work = known;
  }
  const double lanes =
      value(scope, "VECTOR_BYTES") * value(scope, "columns") / value(scope, "ROW_BYTES");
  work.instructions += kPerAccess / lanes;
  const double issue_ns = elements * work.instructions / (kLanes * used * clock_ghz);
  const double power_ns = elements * work.powers / (kPowerLanes * used * clock_ghz);
  // Unless they are held, weights are read for every row, or all that are taken at once.
  const double row_bytes = value(scope, "rows") * value(scope, "ROW_BYTES");
  const double misses = std::min(weights * value(scope, "ROW_BYTES") / kL1WeightBytes, 1.0);
  const double fetched = value(scope, "HELD") > 0 ? 0 : misses * weights * row_bytes / rows_at_once;
  const double l2_ns = (loaded + fetched) / kL2BytesPerNs;
  const double weight_ns = weights > 0 && value(scope, "WEIGHT_EARLY") == 0 ? kWeightNs : 0;
  // A block takes its tiles one after another.
  double turn_ns = reduce_ns + kBlockNs + work.row_ns + weight_ns + (stages > 0 ? 0 : load_ns) +
                   rows_per_block * value(scope, "columns") /
                       (static_cast<double>(threads) * cluster) * work.instructions *
                       kElementClocks / clock_ghz;
  if (threads_per_row > 32) turn_ns *= 1 + kSharedBlockShare * (groups - 1);
  const double running =
      stages > 0 ? std::min(used * resident, value(scope, "PLACED") * cluster) : used * resident;
  const double serial_ns = std::ceil(tiles / running) * turn_ns - (stages > 0 ? 0 : load_ns);
  // A soft maximum, so that what is close to two limits still ranks.
  double body_ns = std::pow(fourth(memory_ns) + fourth(l2_ns) + fourth(issue_ns / 0.7) +
                                fourth(power_ns / 0.8) + fourth(serial_ns),
                            0.25);
  const double doublings = std::log2(cluster);
  body_ns *= stages > 0
                 ? 1 + kRingShare + kStageShare * (stages - 1) + kRingClusterShare * doublings
                 : 1 + kClusterShare * doublings;
  body_ns *= 1 + kAloneShare / live;
  const double waves = tiles / (sms * resident);
  if (stages == 0 && waves > 1) {
    body_ns *= 1 + kTailShare * (std::ceil(waves) - waves) / waves;
  }
  return (writes ? kRampUs : kReadOnlyRampUs) + body_ns / 1e3;
}

}  // namespace kernwright::detail
