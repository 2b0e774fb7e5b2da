#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/candidate/choice.h"
#include "model/result/measurement.h"
#include "support/names.h"

namespace kernwright {

/// A hardware counter that is collected, by the name that NVIDIA's tools have for it.
struct Counter {
  std::string_view name;
  std::string_view unit;     ///< "ns", "byte", "%" or "warps"
  std::string_view meaning;  ///< one line for people
  double highest = 0;        ///< the largest value that it can have
};

inline constexpr std::string_view kTimeCounter = "gpu__time_duration.sum";
inline constexpr std::string_view kDramShareCounter =
    "dram__throughput.avg.pct_of_peak_sustained_elapsed";
inline constexpr std::string_view kDramReadCounter = "dram__bytes_read.sum";
inline constexpr std::string_view kDramWriteCounter = "dram__bytes_write.sum";
inline constexpr std::string_view kTensorShareCounter =
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed";
inline constexpr std::string_view kOccupancyCounter =
    "sm__warps_active.avg.pct_of_peak_sustained_active";
inline constexpr std::string_view kIssueCounter =
    "smsp__issue_active.avg.pct_of_peak_sustained_active";
inline constexpr std::string_view kL2HitCounter = "lts__t_sector_hit_rate.pct";

/// All counters that are collected, in the order in which they are shown.
std::span<const Counter> counters();

/// Returns the reason for which warps wait, "long_scoreboard", if the counter is the average number
/// of warps that wait for it whenever one issues; else empty.
std::string_view stall_reason(std::string_view counter);

/// The value of one counter for a kernel.
struct CounterValue {
  std::string name;
  std::optional<double> value;
  /// Why there is no value, or why it cannot be believed; else empty.
  std::string reason = {};

  friend bool operator==(const CounterValue&, const CounterValue&) = default;
};

/// The value as it is kept: one that is no number is left out with a reason, and one outside of the
/// counter's range is kept with a reason.
CounterValue judged(std::string_view counter, double value);

/// The counters of one kernel of a launch.
struct CountedKernel {
  std::string name;
  std::array<std::uint32_t, 3> grid{1, 1, 1};
  std::vector<CounterValue> values;

  /// Returns the value of a counter, or nullopt if there is none.
  std::optional<double> value(std::string_view counter) const;

  friend bool operator==(const CountedKernel&, const CountedKernel&) = default;
};

/// Who counted: we, by CUPTI, or Nsight Compute.
enum class CounterSource { cupti, ncu };
/// How a kernel was counted: launched by itself, once for each pass, or in a train of launches,
/// whose gaps count too.
enum class CounterMode { kernel_replay, train };

constexpr auto names_of(CounterSource) { return std::to_array<std::string_view>({"cupti", "ncu"}); }
constexpr auto names_of(CounterMode) {
  return std::to_array<std::string_view>({"kernel_replay", "train"});
}

/// The counters of one launch of a candidate. They are evidence beside its times, and no decision
/// or level of trust follows from them.
struct CounterSet {
  Choice choice;
  CounterSource source = CounterSource::cupti;
  std::string version = {};  ///< of the source, "13.0"; empty: not known
  CounterMode mode = CounterMode::kernel_replay;
  L2State cache = L2State::cold;
  int passes = 0;  ///< how often the kernels were launched for it; 0: not known
  std::vector<CountedKernel> kernels = {};  ///< in the order of the launch

  /// Returns the sum over the kernels of a counter that can be added, or nullopt if one lacks it.
  std::optional<double> sum(std::string_view counter) const;
  /// Returns the mean over the kernels, weighted by their times, or nullopt if one lacks it or its
  /// time.
  std::optional<double> mean(std::string_view counter) const;
  /// Microseconds of all kernels.
  std::optional<double> time_us() const;

  friend bool operator==(const CounterSet&, const CounterSet&) = default;
};

void describe(auto& visitor, MaybeConst<CounterSet> auto& set) {
  describe(visitor, set.choice);
  visitor.field("source", set.source);
  visitor.field("version", set.version);
  visitor.field("mode", set.mode);
  visitor.field("cache", set.cache);
  visitor.field("passes", set.passes);
  std::optional<double> time_us = set.time_us();  // it follows from the kernels
  visitor.field("time_us", time_us);
  visitor.field("kernels", set.kernels);
}

}  // namespace kernwright
