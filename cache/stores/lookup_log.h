#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "cache/records/record.h"
#include "model/result/match_names.h"
#include <kernwright/result.h>

namespace kernwright {

/// A lookup of a process, and how it was answered.
struct LoggedLookup {
  RecordKey key;
  Match match = Match::none;  ///< of the answer that was served
  MissReason reason = MissReason::none;
  std::string time;        ///< UTC, ISO 8601
  std::int64_t count = 1;  ///< how often it was asked for
};

void describe(auto& visitor, MaybeConst<LoggedLookup> auto& lookup) {
  describe(visitor, lookup.key);
  visitor.field("match", lookup.match);
  visitor.field("reason", lookup.reason);
  visitor.field("time", lookup.time);
  visitor.field_unless("count", lookup.count, 1);
}

/// Keeps the lookups of processes. It is a file of lines, which are only appended, so several
/// threads, processes and hosts may share it. `parse_worklist` reads it too.
class LookupLog {
 public:
  explicit LookupLog(std::filesystem::path path) : path_(std::move(path)) {}
  /// Returns the log of a cache, which has the answers that were not exact.
  static LookupLog of_misses(const std::filesystem::path& root) {
    LookupLog log(root / "v1" / "misses.jsonl");
    log.within_ = root;
    return log;
  }

  /// Appends a line. Errors: `io`, also if the file has reached its limit (`kLog`): the problems
  /// that are asked for most are in it by then.
  Result<void> append(const LoggedLookup& lookup) const;

  /// Returns the lookups by key, each with the latest answer, the most frequent first; none if
  /// there is no log. Lines that cannot be read are left out; `unread` gets their number. Errors:
  /// see `read_file`.
  Result<std::vector<LoggedLookup>> counts(std::size_t* unread = nullptr) const;

  /// Checks that the file is a log of lookups, if it is there. Errors: `invalid_argument` if it
  /// begins with something else; see also `read_file`.
  Result<void> check() const;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::filesystem::path within_;
};

}  // namespace kernwright
