#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "cache/record.h"
#include <kernwright/match.h>
#include <kernwright/result.h>

namespace kernwright {

/// An answer that was not exact.
struct Miss {
  RecordKey key;
  Match match = Match::none;  ///< what was served
  MissReason reason = MissReason::none;
  std::string time;  ///< UTC, ISO 8601
};

/// The misses of one key.
struct MissCount {
  Miss latest;
  std::int64_t count = 0;
};

/// What processes asked for and was not there as it should be: a file of lines, only appended, that
/// a worklist can be made from. Safe against other processes on the same directory.
class MissLog {
 public:
  explicit MissLog(const std::filesystem::path& root) : path_(root / "v1" / "misses.jsonl") {}

  /// Appends a line, unless the file has reached 16 MiB: what is asked for most is in it by then.
  /// Errors: `io`.
  Result<void> append(const Miss& miss) const;

  /// By key, the most frequent first. Lines that cannot be read are left out.
  std::vector<MissCount> counts() const;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace kernwright
