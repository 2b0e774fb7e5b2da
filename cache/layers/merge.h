#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cache/layers/tiered_cache.h"

namespace kernwright {

/// A problem whose winners differ by more than the noise.
struct Disagreement {
  std::string key;
  HeadWinner ours;
  HeadWinner theirs;
  double ratio = 1;  ///< of the slower winner's time to the faster one's
};

struct MergeReport {
  std::int64_t records = 0;    ///< taken over
  std::int64_t artifacts = 0;  ///< taken over
  std::int64_t overrides = 0;  ///< taken over
  std::int64_t families = 0;   ///< taken over
  std::vector<Disagreement> disagreements;
  /// Left out: files of `from` that cannot be read, records and families without an artifact.
  std::vector<std::string> defects;
};

/// Takes over into the user's layer of `into` the records, families, artifacts and decisions of
/// `from` that are not there. Nothing is replaced, and merging again changes nothing.
///
/// If the measured winners of one key are different configurations, and their times differ by more
/// than `kNoise` and more than three times their spread, they are reported. They are compared by
/// their contents, never by their bytes. Errors: `io`, if something could not be written.
Result<MergeReport> merge(const TieredCache& into, const std::filesystem::path& from);

}  // namespace kernwright
