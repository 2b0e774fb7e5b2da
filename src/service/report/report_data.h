#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/catalog/catalog.h"
#include "service/report/report_sources.h"

namespace kernwright {

/// The inputs of a report.
struct ReportInput {
  const ReportSources& sources;
  const Catalog& catalog;
  std::vector<std::string> names;         ///< of the sources, for people
  const ReportSources* before = nullptr;  ///< that the sources are compared with, if any
  std::string before_name = {};
};

/// A report holds the samples of each winner whole if it has at most so many problems. If it has
/// more, it holds `kFewSamples` medians of successive samples, so that 500 problems stay below 5
/// MB.
inline constexpr std::size_t kMostWholeProblems = 32;
inline constexpr std::size_t kFewSamples = 48;

/// Returns all that the page of a report shows, as one JSON object on one line; src/cli/README.md
/// names its fields. Times are rounded to five digits, intervals and predictions to four.
std::string report_json(const ReportInput& input);

/// Returns the object that `report_json` has for one record, with all of its samples.
std::string record_data(const ReportedRecord& reported, const Catalog& catalog);

}  // namespace kernwright
