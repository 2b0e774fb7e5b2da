#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "cache/records/record.h"
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

/// Keeps what processes asked for and did not find as it should be. It is a file of lines, which
/// are only appended, and a worklist can be made from it. Safe against other processes on the same
/// directory.
class MissLog {
 public:
  explicit MissLog(std::filesystem::path root)
      : root_(std::move(root)), path_(root_ / "v1" / "misses.jsonl") {}

  /// Appends a line. Errors: `io`, also where the file has reached its limit (`kLog`): the problems
  /// that are asked for most are in it by then.
  Result<void> append(const Miss& miss) const;

  /// The misses by key, the most frequent first; none where there is no log. Lines that cannot be
  /// read are left out. Errors: those of `read_file`.
  Result<std::vector<MissCount>> counts() const;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path root_;
  std::filesystem::path path_;
};

}  // namespace kernwright
