#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "model/candidate/candidate.h"
#include "model/catalog/catalog.h"
#include <kernwright/result.h>

namespace kernwright {

/// A candidate list for one problem: every valid configuration of every template that applies, with
/// predictions. Of a template with more than 400,000 points that many are looked at, and of those
/// that obey its rules 20,000 are kept, evenly spread and the same each time; a note says so. This
/// takes at most seconds, however large a space is. Errors: `not_found` where no template gives a
/// candidate, with each template's reason.
struct CandidateList {
  std::vector<Candidate> candidates;
  std::vector<double> predicted_us;
  std::size_t default_index = 0;  ///< the fastest predicted of those nearest to their default
  int rejected = 0;
  std::vector<int> group_of;       ///< an ordinal per shared compile, see SearchSpace
  std::vector<std::string> notes;  ///< why templates do not apply; what was only sampled
};
Result<CandidateList> enumerate_candidates(const Catalog& catalog, const Operation& operation,
                                           const Problem& normalized, const DeviceProfile& profile);

/// In how many parameters a candidate is not its template's default.
int distance_from_default(const Candidate& candidate);

}  // namespace kernwright
