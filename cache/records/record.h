#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/candidate/choice.h"
#include "model/result/counters.h"
#include "model/result/evidence.h"
#include "model/result/measurement.h"
#include "model/result/traits.h"
#include <kernwright/result.h>

namespace kernwright {

/// The name of the operation, with which the text of a problem begins.
std::string_view operation_of(std::string_view problem);

/// The key of a record. A difference in any field makes another key.
struct RecordKey {
  std::string problem;  ///< canonical text
  std::string target;   ///< architecture of the device, "sm_90"
  std::string sku;      ///< profile id, "h200"
  MeasurePolicy policy;

  /// Canonical text of the whole key.
  std::string text() const;
  friend bool operator==(const RecordKey&, const RecordKey&) = default;
};

void describe(auto& visitor, MaybeConst<RecordKey> auto& key) {
  visitor.field("problem", key.problem);
  visitor.field("target", key.target);
  visitor.field("sku", key.sku);
  visitor.field("policy", key.policy);
}

/// The environment that a record was made in. A difference lowers the grade of a match, but does
/// not hide the record.
struct RecordEnvironment {
  std::string template_digest;  ///< of the winner's template: manifest, source, headers
  std::string compiler;         ///< `Compiler::identity`
  std::string driver;           ///< empty if predicted
  std::string kernwright;       ///< version

  friend bool operator==(const RecordEnvironment&, const RecordEnvironment&) = default;
};

void describe(auto& visitor, MaybeConst<RecordEnvironment> auto& environment) {
  visitor.field("template_digest", environment.template_digest);
  visitor.field("compiler", environment.compiler);
  visitor.field("driver", environment.driver);
  visitor.field("kernwright", environment.kernwright);
}

/// The source of a record's times.
enum class RecordGrade { measured, predicted };

constexpr auto names_of(RecordGrade) {
  return std::to_array<std::string_view>({"measured", "predicted"});
}

/// One choice with its evidence.
struct RankedConfiguration {
  Choice choice;
  std::string artifact = {};     ///< digest of its cubin's request, hex
  Measurement measurement = {};  ///< of the finals: entry i belongs to round i
  double predicted_us = 0;
  Traits traits = {};
  double launch_gap_us = 0;  ///< of an empty kernel with the same launches; 0: not measured
  Slowdown slowdown = {};    ///< against the fastest finalist
  bool tied = false;         ///< not distinguishable from the fastest
  /// True if its last `FinalRounds::block_rounds` samples come from blocks.
  bool in_blocks = false;

  friend bool operator==(const RankedConfiguration&, const RankedConfiguration&) = default;
};

void describe(auto& visitor, MaybeConst<RankedConfiguration> auto& ranked) {
  describe(visitor, ranked.choice);
  visitor.field("artifact", ranked.artifact);
  visitor.field("samples_us", ranked.measurement.samples_us);
  visitor.newer("sm_mhz", ranked.measurement.sm_mhz);
  visitor.field("predicted_us", ranked.predicted_us);
  visitor.field("resources", ranked.traits.resources);
  visitor.newer("smem_bytes", ranked.traits.smem_bytes);
  visitor.newer("workspace_bytes", ranked.traits.workspace_bytes);
  visitor.newer("launch_gap_us", ranked.launch_gap_us);
  visitor.newer("slowdown", ranked.slowdown);
  visitor.newer("is_default", ranked.traits.is_default);
  visitor.newer("is_predicted", ranked.traits.is_predicted);
  visitor.newer("is_incumbent", ranked.traits.is_incumbent);
  visitor.newer("tied", ranked.tied);
  visitor.newer("deterministic", ranked.traits.deterministic);
  visitor.newer("warned", ranked.traits.warned);
  visitor.newer("in_blocks", ranked.in_blocks);
}

/// The measurements beside the finalists, one entry per round, and the rounds that do not count.
struct FinalRounds {
  std::vector<double> sm_probe_us;
  std::vector<double> dram_probe_us;
  std::vector<int> dropped;  ///< rounds that an outside disturbance hit
  /// The best few finalists have this many samples from blocks, after those of the rounds. In a
  /// block a finalist runs alone, with the clock that it has alone, so these samples decide. 0:
  /// there are no blocks.
  int block_rounds = 0;

  friend bool operator==(const FinalRounds&, const FinalRounds&) = default;
};

void describe(auto& visitor, MaybeConst<FinalRounds> auto& rounds) {
  visitor.field("sm_reference_us", rounds.sm_probe_us);
  visitor.field("dram_reference_us", rounds.dram_probe_us);
  visitor.field("dropped", rounds.dropped);
  visitor.field("block_rounds", rounds.block_rounds);
}

/// The numbers of a search.
struct SearchSummary {
  std::string strategy;
  std::uint64_t random_seed = 0;
  int rejected = 0;  ///< by the rules
  int compiled = 0;
  int failed = 0;              ///< those that were tried and are not ok
  int raced = 0;               ///< those that passed screening
  int warm_starts = 0;         ///< taken from other records
  std::string stop_reason;     ///< "budget", "exhausted", "no_improvement", "roofline", "trials"
  double regret_estimate = 0;  ///< how much faster an untried candidate may be; 0.02 is 2 %

  friend bool operator==(const SearchSummary&, const SearchSummary&) = default;
};

void describe(auto& visitor, MaybeConst<SearchSummary> auto& search) {
  visitor.field("strategy", search.strategy);
  visitor.field("seed", search.random_seed);
  visitor.field("rejected", search.rejected);
  visitor.field("compiled", search.compiled);
  visitor.field("failed", search.failed);
  visitor.field("raced", search.raced);
  visitor.field("seeds", search.warm_starts);
  visitor.field("stop_reason", search.stop_reason);
  visitor.field("regret_estimate", search.regret_estimate);
}

/// The answer worth keeping: winner, evidence, environment, runners-up.
struct TuningRecord {
  RecordKey key;
  RecordEnvironment environment;
  RecordGrade grade = RecordGrade::measured;
  RankedConfiguration winner;
  std::vector<RankedConfiguration> runners_up;  ///< best first, at most 7
  /// The default configuration, as measured in the same rounds as the winner.
  std::optional<RankedConfiguration> baseline;
  CheckReport check;  ///< of the winner
  Trust trust = Trust::c;
  Audit audit;  ///< before, during and after
  Verdict verdict = Verdict::unresolved;
  FinalRounds rounds;
  LaunchTimes launch_paths;  ///< of the winner
  SearchSummary search;
  double settle_ms = 0;        ///< until the probe kernels were steady
  double idle_seconds = 0;     ///< without work for the device, from the first sample on
  double longest_idle_ms = 0;  ///< the longest of these times
  int candidates = 0;          ///< valid ones
  int measured = 0;
  std::string device_name;
  std::string device_uuid;
  double roofline_us = 0;  ///< the larger of flops and bytes over the profile's rates
  double wall_seconds = 0;
  std::string created;  ///< UTC, ISO 8601
  /// The counters collected later of the winner, the default and runners-up. Nothing else in the
  /// record depends on it.
  std::vector<CounterSet> counters;

  friend bool operator==(const TuningRecord&, const TuningRecord&) = default;
};

/// Version 0.1 did not write how the choice was made.
void describe(auto& visitor, MaybeConst<TuningRecord> auto& record) {
  visitor.field("key", record.key);
  visitor.field("environment", record.environment);
  visitor.field("grade", record.grade);
  visitor.field("winner", record.winner);
  visitor.field("runners_up", record.runners_up);
  visitor.field("baseline", record.baseline);
  visitor.field("check", record.check);
  visitor.newer("trust", record.trust);
  visitor.newer("audit", record.audit.rows);
  visitor.newer("verdict", record.verdict);
  visitor.newer("rounds", record.rounds);
  describe(visitor, record.launch_paths);
  visitor.newer("search", record.search);
  visitor.newer("settle_ms", record.settle_ms);
  visitor.newer("idle_seconds", record.idle_seconds);
  visitor.newer("longest_idle_ms", record.longest_idle_ms);
  visitor.field("candidates", record.candidates);
  visitor.field("measured", record.measured);
  visitor.field("device_name", record.device_name);
  visitor.field("device_uuid", record.device_uuid);
  visitor.field("roofline_us", record.roofline_us);
  visitor.field("wall_seconds", record.wall_seconds);
  visitor.field("created", record.created);
  visitor.field_unless("counters", record.counters, {});
}

/// JSON text, one object on one line, stable field order. `parse_record(to_json(r))` gives r back,
/// doubles bit by bit; a number that is not finite does not come back, and `RecordStore::put`
/// refuses it.
std::string to_json(const TuningRecord& record);

/// Fields that it does not know are ignored. Errors: `corrupt` naming the field.
Result<TuningRecord> parse_record(std::string_view json);

}  // namespace kernwright
