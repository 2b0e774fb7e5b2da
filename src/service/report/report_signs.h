#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "service/report/report_sources.h"

namespace kernwright {

/// One sentence about what speaks against some of the records of a report.
struct ReportSign {
  std::string text;
  std::vector<std::size_t> records;  ///< their places in the sources; empty: it concerns no record
};

/// Returns the bad signs, the worst first. Empty if there are none.
std::vector<ReportSign> report_signs(const ReportSources& sources);

}  // namespace kernwright
