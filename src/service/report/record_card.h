#pragma once

#include <string>

#include "cache/records/record.h"
#include "service/report/sweep_report.h"

namespace kernwright {

/// Returns a record as a part of a page, such as the output of a notebook: the winner, how sure
/// that is, by how much, and its launch parameters; the race as a picture, with its table folded
/// behind it. It has no script, no style of the whole page, and makes no requests. Text has the
/// colour and the ground of the page, so it can be read on light and on dark ones.
std::string record_card(const TuningRecord& record, const ReportRow& row);

}  // namespace kernwright
