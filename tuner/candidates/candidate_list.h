#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cache/records/record_view.h"
#include "model/candidate/candidate.h"
#include "model/catalog/catalog.h"
#include <kernwright/result.h>

namespace kernwright {

/// The candidates for one problem: every valid configuration of every template that applies and
/// breaks at most so many habits, with predictions. If a template has more than `kMaxPoints`
/// points, only that many are looked at, and at most `kMaxCandidates` of the points that obey the
/// rules are kept. Both are evenly spread and the same each time, and a note says so. So listing
/// takes at most seconds, however large a space is. Errors: `not_found` if no template has a
/// candidate, with the reason of each template.
struct CandidateList {
  std::vector<Candidate> candidates;
  std::vector<double> predicted_us;
  std::size_t default_index = 0;  ///< the fastest predicted of those nearest to their default
  int rejected = 0;
  std::vector<int> group_of;       ///< an ordinal per shared compile, see SearchSpace
  std::vector<std::string> notes;  ///< why templates do not apply; what was only sampled
};
Result<CandidateList> enumerate_candidates(const Catalog& catalog, const BoundProblem& problem,
                                           const DeviceProfile& profile,
                                           std::size_t broken_habits = 0);

/// Returns true if the default, which was chosen by hand, is taken although another is predicted
/// faster.
inline bool keeps_default(double default_us, double fastest_us) {
  return default_us <= (1 + kModelDoubt) * fastest_us;
}

/// Returns the candidate that is taken if nothing was measured: the default if it is kept, else the
/// candidate that is predicted to be the fastest.
std::size_t predicted_choice(std::span<const double> predicted_us, std::size_t default_index);

/// Returns the indices of the candidates that are not `banned` by prediction, the default first if
/// it is kept, and one of each shared compile alone: the others would compile to the same bits.
std::vector<std::size_t> best_of_each_group(
    const CandidateList& list,
    const std::function<bool(const Candidate&)>& banned = [](const Candidate&) { return false; });

/// Returns the number of parameters in which a candidate differs from its template's default.
int distance_from_default(const Candidate& candidate);

}  // namespace kernwright
