#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "service/report/report_sources.h"
#include <kernwright/result.h>

namespace kernwright {

/// A request for a report.
struct ReportRequest {
  ReportInputs inputs;
  std::string title = {};  ///< empty: made from the inputs' names
  std::vector<std::filesystem::path> template_dirs = {};
  std::vector<std::filesystem::path> epilogues = {};
  std::filesystem::path compare = {};  ///< an earlier cache or record; empty: none
  std::filesystem::path output;
};

/// The page that was written.
struct ReportFile {
  std::filesystem::path file;
  std::size_t bytes = 0;
  std::size_t records = 0;
  std::size_t missing = 0;           ///< problems without a record
  std::vector<std::string> defects;  ///< files that could not be read, which the page names too
};

/// Reads the records and writes the page. Errors: from `read_report_sources` and from writing;
/// `not_found` if there is neither a record nor a problem.
Result<ReportFile> write_report(const ReportRequest& request);

}  // namespace kernwright
