#include "service/sweep/sweep_state.h"

namespace kernwright {

SweepState sweep_state(std::span<const GradedRecord> known, RecordGrade wanted, bool recheck) {
  SweepState state;
  for (const GradedRecord& found : known) {
    const bool holds = found.match <= Match::family ||
                       (found.match == Match::recheck && !recheck) ||
                       (found.match == Match::predicted && found.reason == MissReason::none);
    if (!holds) continue;
    if (wanted == RecordGrade::measured) {
      if (found.head.grade != RecordGrade::measured) continue;
      if (found.head.trust == Trust::c) {
        state.provisional = true;
        continue;
      }
    }
    return {.settled = &found, .provisional = false};
  }
  return state;
}

}  // namespace kernwright
