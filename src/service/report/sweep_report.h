#pragma once

#include <string>
#include <string_view>

#include "cache/records/record.h"
#include "model/candidate/device_profile.h"
#include "model/operation/bound_problem.h"

namespace kernwright {

/// What bounds a kernel: the roofline's memory or arithmetic side, or what launching costs.
enum class Bound { memory, compute, launch };

/// What a record allows to claim of its winner. `supported`: clearly faster than the default, on a
/// device of trust A; `measured`: measured, and not that; `default_kept`: no candidate beat
/// the default, which is served; `caveated`: of trust C, or only predicted.
enum class Support { supported, measured, caveated, default_kept };

std::string_view to_string(Bound bound);
std::string_view to_string(Support support);

/// A record judged for a sweep's report.
struct ReportRow {
  double us = 0;              ///< measured, or else predicted
  double roofline_share = 0;  ///< 1: at the roofline
  Bound bound = Bound::memory;
  /// How much slower the runner-up is: 0.02 is 2 %; 0 where there is none, or it is not slower.
  double margin = 0;
  Support support = Support::caveated;
  std::string next_evidence;  ///< what would change the decision; empty: nothing foreseeable
};

/// `problem` is the record's.
ReportRow report_row(const TuningRecord& record, const BoundProblem& problem,
                     const DeviceProfile& profile);

}  // namespace kernwright
