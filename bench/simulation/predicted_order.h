#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "bench/simulation/recorded_space.h"
#include "tuner/candidates/candidate_list.h"

namespace kernwright {

/// A recorded configuration that is a candidate today: the predicted time and the measured ones,
/// which are infinite if it failed or did not reach the finals.
struct Judged {
  double predicted_us = 0;
  double truth_us = std::numeric_limits<double>::infinity();
  double final_us = std::numeric_limits<double>::infinity();
  bool compiles = true;  ///< to code that does not spill; a first answer passes others over
};

/// Returns for each recorded configuration its place among the candidates of today. They are
/// matched by the parameters that were recorded; a parameter that came later is at its default. The
/// place is empty if the template or a parameter is gone.
std::vector<std::optional<std::size_t>> candidates_of(const RecordedSpace& space,
                                                      const CandidateList& list);

/// The recorded space with today's predictions, without configurations that are no candidates.
RecordedSpace predicted_today(const RecordedSpace& space, const CandidateList& list);

/// The recorded configurations that are left of it, in the order of the predictions.
std::vector<Judged> in_predicted_order(const RecordedSpace& space, const CandidateList& list);

/// Returns the least `time` of the first `count`, or of all if there are fewer.
double fastest(std::span<const Judged> judged, std::size_t count, double Judged::* time);

}  // namespace kernwright
