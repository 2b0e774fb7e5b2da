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
  /// If a runner-up is served because it is pinned or the winner is banned: the candidate that was
  /// measured as the winner. The checks of the record belong to this one.
  std::string instead_of = {};
  std::size_t records = 0;  ///< how many the problem has
  Decisions decisions = {};
};

/// Returns the best record of the problem itself. Errors: `not_found` if there is none, with the
/// reason; `corrupt` if it cannot be read.
Result<AnsweringRecord> answering_record(const ServiceCore& service, const BoundProblem& problem);

}  // namespace kernwright
