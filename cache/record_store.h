#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cache/miss.h"
#include "cache/record.h"
#include <kernwright/result.h>

namespace kernwright {

/// Tuning records: one directory per key, one immutable file per run, nothing merged in place.
/// Thread-safe, and safe against other processes on the same directory.
class RecordStore {
 public:
  explicit RecordStore(std::filesystem::path root);

  /// Every readable record of a key, newest first, and what was wrong with the others.
  struct Found {
    std::vector<TuningRecord> records;
    std::vector<std::string> defects;
    MissReason reason = MissReason::absent;  ///< where `records` is empty
  };
  Found get(const RecordKey& key) const;

  /// Publishes one more run under its key. Errors: `io`.
  Result<std::filesystem::path> put(const TuningRecord& record) const;

  /// Every record file below the root, sorted by path, decoded or with its defect.
  struct Listed {
    std::filesystem::path path;
    Lookup<TuningRecord> record;
  };
  std::vector<Listed> list() const;

 private:
  std::filesystem::path root_;
};

}  // namespace kernwright
