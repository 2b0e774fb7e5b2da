#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string_view>
#include <vector>

#include "cache/layers/tiered_cache.h"

namespace kernwright {

/// The number and the size of the files that were removed.
struct Removed {
  std::int64_t files = 0;
  std::int64_t bytes = 0;
};

/// Removes the superseded runs and families. `now` is the time, UTC in ISO 8601. Decisions and
/// defective files stay. Errors: `io`, which names the first file that could not be removed; the
/// others are still removed.
Result<Removed> compact(const RecordStore& records, std::string_view now);

/// Returns the files of the runs that no lookup will serve again, whatever environment it asks for.
/// Such a run comes after another run of the same key and environment, which is as good a
/// measurement and newer. A run that is dated after `now` supersedes none: a wrong clock dated it,
/// and nothing says that it is the newer.
std::set<std::filesystem::path> superseded(const std::vector<RecordRun>& runs,
                                           std::string_view now);
/// Does the same for families.
std::set<std::filesystem::path> superseded(const std::vector<RecordStore::FamilyRun>& families,
                                           std::string_view now);

/// The limits for the artifacts that a prune leaves.
struct PruneLimits {
  std::int64_t bytes = std::int64_t{5} << 30;  ///< of all artifacts
  double days = 0;                             ///< since they were published; 0: any age
};

/// Removes artifacts, the oldest first, until the remaining ones are within the limits. An artifact
/// that any record of the root names as its winner's, or a family as a kernel's, stays, whatever
/// the limits. Temporary files, trials without their record, and logs of searches of keys without a
/// record are removed too if they are older than an hour: their writers were killed, or the records
/// are gone. Errors: see `compact`; `corrupt`, with nothing removed, if a folder, a record's head
/// or a family cannot be read, because it may name a winner.
Result<Removed> prune(const TieredCache& cache, const PruneLimits& limits);

}  // namespace kernwright
