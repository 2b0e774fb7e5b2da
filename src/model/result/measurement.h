#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/names.h"
#include <kernwright/l2_state.h>

namespace kernwright {

/// How a trial ended. These are all outcomes, and their spelling is that on disk.
enum class Outcome {
  ok,
  rejected,
  compile_failed,
  link_failed,
  spilled,
  launch_failed,
  out_of_memory,
  illegal_address,
  out_of_bounds,
  wrong_result,
  nondeterministic,
  timed_out,
  worker_died,
  device_lost
};

constexpr auto names_of(Outcome) {
  return std::to_array<std::string_view>(
      {"ok", "rejected", "compile_failed", "link_failed", "spilled", "launch_failed",
       "out_of_memory", "illegal_address", "out_of_bounds", "wrong_result", "nondeterministic",
       "timed_out", "worker_died", "device_lost"});
}

constexpr auto names_of(L2State) {
  return std::to_array<std::string_view>({"cold", "warm", "mixed"});
}

/// How kernels are timed: launched from a graph, back to back for so long that the power limit
/// counts, with the L2 in state `l2`. It is part of a record's key.
struct MeasurePolicy {
  L2State l2 = L2State::cold;

  /// "l2=cold launch=graph power=sustained".
  std::string text() const;
  friend bool operator==(const MeasurePolicy&, const MeasurePolicy&) = default;
};

/// Returns the policy with this text, or nullopt if there is none.
std::optional<MeasurePolicy> parse_policy(std::string_view text);

/// One sample: the mean time of a unit of work over a graph replay of 1 to 4 ms.
struct Sample {
  double us = 0;          ///< per unit
  double sm_mhz = 0;      ///< SM clock over the sample; 0 if not known
  double at_seconds = 0;  ///< when it ended, on the runner's clock

  friend bool operator==(const Sample&, const Sample&) = default;
};

void describe(auto& visitor, MaybeConst<Sample> auto& sample) {
  visitor.field("us", sample.us);
  visitor.field("sm_mhz", sample.sm_mhz);
  visitor.field("at_seconds", sample.at_seconds);
}

/// Times of one unit of work in microseconds, in the order in which they were taken. For finalists
/// entry i was taken in round i.
struct Measurement {
  std::vector<double> samples_us;
  std::vector<double> sm_mhz = {};  ///< one per sample, or empty if not known

  double median_us() const;
  /// The median absolute deviation from the median.
  double mad_us() const;
  double min_us() const;
  friend bool operator==(const Measurement&, const Measurement&) = default;
};

/// The checks that were made and what they found, as a record keeps it.
struct CheckReport {
  double max_error = 0;         ///< largest |x - r| / bound; at most 1 passes
  std::int64_t mismatches = 0;  ///< elements beyond their bound, or NaN
  std::int64_t elements = 0;
  std::string first_mismatch;  ///< "d[3,17]: 0.5 != 0.25 (bound 0.01)"
  bool exact = false;          ///< right to the last bit on small integers
  bool guarded = false;        ///< red zones on both sides of every tensor stayed intact
  bool unmapped = false;       ///< it ran with every tensor against an unmapped page
  int repeats = 0;             ///< runs on equal inputs whose results were compared
  bool deterministic = true;   ///< their bits were equal
  bool after_timing = false;   ///< it was right again after it was timed

  friend bool operator==(const CheckReport&, const CheckReport&) = default;
};

void describe(auto& visitor, MaybeConst<CheckReport> auto& check) {
  visitor.field("max_error", check.max_error);
  visitor.field("mismatches", check.mismatches);
  visitor.field("elements", check.elements);
  visitor.field("first_mismatch", check.first_mismatch);
  visitor.newer("exact", check.exact);
  visitor.newer("guarded", check.guarded);
  visitor.newer("unmapped", check.unmapped);
  visitor.newer("repeats", check.repeats);
  visitor.newer("deterministic", check.deterministic);
  visitor.newer("after_timing", check.after_timing);
}

}  // namespace kernwright
