#pragma once

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

/// The environment that a record was made in. A difference lowers the grade of a match, but does
/// not hide the record.
struct RecordEnvironment {
  std::string template_digest;  ///< of the winner's template: manifest, source, headers
  std::string compiler;         ///< `Compiler::identity`
  std::string driver;           ///< empty where predicted
  std::string kernwright;       ///< version

  friend bool operator==(const RecordEnvironment&, const RecordEnvironment&) = default;
};

/// Whether a record was measured or predicted.
enum class RecordGrade { measured, predicted };

std::string_view to_string(RecordGrade grade);

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
  /// Whether its last `FinalRounds::block_rounds` samples come from blocks.
  bool in_blocks = false;
};

/// The measurements beside the finalists, one entry per round, and the rounds that do not count.
struct FinalRounds {
  std::vector<double> sm_probe_us;
  std::vector<double> dram_probe_us;
  std::vector<int> dropped;  ///< rounds that an outside disturbance hit
  /// The best few finalists have this many samples from blocks, after those of the rounds. In a
  /// block a finalist runs alone and has the clock of that, so these samples decide. 0: there are
  /// no blocks.
  int block_rounds = 0;

  friend bool operator==(const FinalRounds&, const FinalRounds&) = default;
};

/// The samples of a finalist, separated by what ran between them.
struct FinalTimes {
  Measurement in_turn;  ///< one per round, with other finalists in between
  Measurement alone;    ///< those of its blocks, if there were any
};
FinalTimes final_times(const RankedConfiguration& ranked, const FinalRounds& rounds);

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
};

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
  /// What was counted later of the winner, the default and runners-up. Nothing else in the record
  /// depends on it.
  std::vector<CounterSet> counters;
};

/// JSON text, one object on one line, stable field order. `parse_record(to_json(r))` gives r back,
/// doubles bit by bit; a number that is not finite does not come back, and `RecordStore::put`
/// refuses it.
std::string to_json(const TuningRecord& record);

/// Fields that it does not know are ignored. Errors: `corrupt` naming the field.
Result<TuningRecord> parse_record(std::string_view json);

}  // namespace kernwright
