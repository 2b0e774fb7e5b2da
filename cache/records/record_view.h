#pragma once

#include <string>

#include "cache/records/record.h"

/// Questions to a record, from those who show it, judge it or replace it.
namespace kernwright {

/// The samples of a finalist, separated by what ran between them.
struct FinalTimes {
  Measurement in_turn;  ///< one per round, with other finalists in between
  Measurement alone;    ///< the samples of its blocks, if there were any
};
FinalTimes final_times(const RankedConfiguration& ranked, const FinalRounds& rounds);

/// Returns the median of the winner in rounds with the other finalists, or the predicted time.
double winner_us(const TuningRecord& record);

/// Returns whether more than a fifth of its time passes between kernels. The cost of launching then
/// decides, not the kernel.
bool gap_dominated(const RankedConfiguration& ranked);

/// The cost model does not tell apart candidates that are closer than this, as a share.
inline constexpr double kModelDoubt = 0.03;
/// Returns whether the winner of a prediction is the default although another candidate is
/// predicted to be faster, by less than the cost model can tell.
bool default_kept(const TuningRecord& record);

/// A search that was cut off after fewer candidates than this has hardly looked. On 14 of 18 spaces
/// recorded on an H200 the cost model's first 16 candidates hold one within 1.1 % of the best. Its
/// first alone is up to 72 % slower than the best there.
inline constexpr int kFewestLooks = 16;
/// Returns whether `ended` of `candidates` candidates say little about the space: they are fewer
/// than `kFewestLooks`, and not all.
bool hardly_looked(int ended, int candidates);
/// Returns whether the search of a measured record was cut off by its seconds or its trials that
/// early.
bool hardly_looked(const TuningRecord& record);
/// Returns "3 of 2341 candidates were tried".
std::string tried_words(const TuningRecord& record);

/// A gain that would be worth another search.
inline constexpr double kWorthwhile = 0.02;
/// Returns whether a search ended by its budget while what it did not try may be faster by
/// `kWorthwhile`.
bool may_be_faster(const TuningRecord& record);

/// Returns verdict and trust, "win A"; or "predicted".
std::string certainty(const TuningRecord& record);

/// Names the rule that chose the winner among finalists that no time told apart, as the end of a
/// sentence: "it needs fewer registers". Empty if nothing was tied with the winner.
std::string tie_rule(const TuningRecord& record);

}  // namespace kernwright
