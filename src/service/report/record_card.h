#pragma once

#include <string>

#include "cache/records/record.h"
#include "service/report/sweep_report.h"

namespace kernwright {

/// A record as a part of a page, such as the output of a notebook: what won, how sure that is, by
/// how much, and what the winner is launched with; the race as a picture, with its table folded
/// behind it. It has no script, no style of the whole page, and nothing to ask for. Text has the
/// colour and the ground of the page, so it is read on light and on dark ones.
std::string record_card(const TuningRecord& record, const ReportRow& row);

}  // namespace kernwright
