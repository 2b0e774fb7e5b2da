#pragma once

#include <cstddef>
#include <string>

#include "cache/records/record.h"
#include "service/serve/core.h"

namespace kernwright {

/// The record that answers a problem, whole, with how well it does.
struct AnsweringRecord {
  TuningRecord record;  ///< its winner is the candidate that is served
  std::string file;
  Match match = Match::none;
  MissReason reason = MissReason::none;
  /// The candidate that was measured as the winner, where a runner-up is served in its place,
  /// because that is pinned or the winner is banned. The checks of the record are of this one.
  std::string instead_of = {};
  std::size_t records = 0;  ///< how many there are of the problem
  Decisions decisions = {};
};

/// The best record of the problem itself. Errors: `not_found` where there is none, with the reason;
/// `corrupt` where it cannot be read.
Result<AnsweringRecord> answering_record(const ServiceCore& service, const BoundProblem& problem);

}  // namespace kernwright
