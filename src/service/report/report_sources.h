#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cache/records/record.h"
#include "cache/records/trial_table.h"
#include "model/catalog/catalog.h"
#include <kernwright/result.h>

namespace kernwright {

/// A record that a report tells of.
struct ReportedRecord {
  TuningRecord record;
  std::optional<TrialTable> trials;
  std::string no_trials;  ///< why there are none
};

/// The record of `file`, in a cache at `root`, with the trials that are kept beside it.
ReportedRecord with_trials(TuningRecord record, const std::string& file,
                           const std::filesystem::path& root = {});

/// What a report tells of.
struct ReportSources {
  std::vector<ReportedRecord> records;  ///< of each key one; in the order of the inputs
  struct Missing {
    std::string problem;
    std::string why;
  };
  std::vector<Missing> missing;      ///< problems of worklists without a record
  std::vector<std::string> defects;  ///< files that could not be read
};

/// Where records are looked for.
struct ReportInputs {
  /// Each is a cache, a directory; a record, a file of one; or a worklist, whose records are those
  /// of `cache`.
  std::vector<std::filesystem::path> paths;
  /// Further problems, normalised, whose records are those of `cache`. Without any and without
  /// paths the report is of all of `cache`.
  std::vector<Problem> problems = {};
  std::filesystem::path cache;
  std::vector<std::filesystem::path> read_only_caches = {};
  std::string sku = {};  ///< of this SKU alone; empty: of any
};

/// Reads the records. Of several of one key it takes what was measured before what was predicted,
/// then the highest trust, then the newest: what a lookup takes where environments do not differ. A
/// bundle that is installed below a cache is part of it. Errors: `not_found`, `invalid_argument`
/// and `io` for an input that is none of the three; those of a worklist.
Result<ReportSources> read_report_sources(const ReportInputs& inputs, const Catalog& catalog);

}  // namespace kernwright
