#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cache/records/record.h"
#include "service/report/sweep_report.h"

namespace kernwright {

// Numbers as a report writes them, in UTF-8: a number and its unit do not part at the end of a
// line.
/// "260.4 µs", "12.30 ms"; a dash if the time is not known.
std::string us_text(double us);
/// Returns the logarithm of a ratio as a percentage, "0.5 %".
std::string percent_text(double log_ratio);
/// "80.0 %".
std::string share_text(double share);
/// "1.13×".
std::string times_text(double times);
/// "28.7 kB".
std::string bytes_text(double bytes);

/// Returns the words for the support of a record: "default kept".
std::string_view support_words(Support support);

/// Returns the decision of a record in a few sentences: how it was decided, how much faster the
/// winner is than the default, what bounds it, and what to do next.
std::vector<std::string> record_words(const TuningRecord& record, const ReportRow& row);

/// Says which launch path is the best and why, as the times beside it have it: "graph: the shortest
/// back to back". Names the record's own choice if it is another one. Empty if no path was
/// measured.
std::string launch_words(const LaunchTimes& paths);

}  // namespace kernwright
