#pragma once

#include <array>
#include <string_view>

#include "cache/records/record.h"
#include "model/result/evidence.h"

namespace kernwright {

/// Sessions of tuning differ by more than their samples say: winners of fresh processes lay within
/// 0.59 % of each other when they were measured again (bench/results/h200/finals.json).
inline constexpr double kBetweenSessions = 0.006;
/// Two sessions that differ by less than this say the same.
inline constexpr double kSameTime = 0.02;

/// The result of comparing the winners of two records of the same key.
enum class Change { faster, slower, same, equal, unclear };

constexpr auto names_of(Change) {
  return std::to_array<std::string_view>({"faster", "slower", "same", "equal", "unclear"});
}

struct Comparison {
  Change change = Change::unclear;
  /// The slowdown of the new winner against the old. Its interval combines the intervals of both
  /// medians, by the order statistics of the rounds, and `kBetweenSessions` on both sides.
  Slowdown slowdown;
};

/// Returns `faster` or `slower` if the interval leaves no doubt, and the difference is at least
/// `kEquivalence`; `same` if the interval is within `kSameTime`; `equal` if both were only
/// predicted, with the same winner and the same time; `unclear` otherwise.
Comparison compare_winners(const TuningRecord& old_record, const TuningRecord& new_record);

}  // namespace kernwright
