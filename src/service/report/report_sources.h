#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cache/records/family_record.h"
#include "cache/records/record.h"
#include "cache/records/trial_table.h"
#include "model/catalog/catalog.h"
#include <kernwright/result.h>

namespace kernwright {

/// A record in a report.
struct ReportedRecord {
  TuningRecord record;
  std::optional<TrialTable> trials;
  std::string no_trials;  ///< why there are none
};

/// Returns the record of `file`, in a cache at `root`, with the trials that are kept beside it.
ReportedRecord with_trials(TuningRecord record, const std::string& file,
                           const std::filesystem::path& root = {});

/// The contents of a report.
struct ReportSources {
  std::vector<ReportedRecord> records;  ///< one for each key; in the order of the inputs
  std::vector<FamilyRecord> families;   ///< likewise
  struct Missing {
    std::string problem;
    std::string why;
  };
  std::vector<Missing> missing;      ///< problems of worklists without a record
  std::vector<std::string> defects;  ///< files that could not be read

  /// Returns the number of records, families included.
  std::size_t count() const { return records.size() + families.size(); }
};

/// The places in which records are looked for.
struct ReportInputs {
  /// Each is a cache, a directory; a record, a file of one; or a worklist, whose records are in
  /// `cache`.
  std::vector<std::filesystem::path> paths;
  /// Further problems, normalised, with or without ranges, whose records are in `cache`. Without
  /// any and without paths the report is about all of `cache`.
  std::vector<Problem> problems = {};
  std::filesystem::path cache;
  std::vector<std::filesystem::path> read_only_caches = {};
  std::string sku = {};  ///< only records of this SKU; empty: of any
};

/// Reads the records. If a key has several, it takes a measured one before a predicted one, then
/// the highest trust, then the newest, as a lookup does if environments do not differ. A bundle
/// that is installed below a cache is part of it. Errors: `not_found`, `invalid_argument` and `io`
/// for an input that is none of the three; from a worklist.
Result<ReportSources> read_report_sources(const ReportInputs& inputs, const Catalog& catalog);

}  // namespace kernwright
