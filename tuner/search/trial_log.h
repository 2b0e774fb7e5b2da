#pragma once

#include <filesystem>
#include <string>

#include "cache/records/record.h"
#include "model/result/trial.h"
#include <kernwright/result.h>

namespace kernwright {

/// An append-only file with one JSON line per trial. The first line of a session names its key and
/// environment. Lines are written as trials end, so that no measurement is lost. If the path is
/// empty, there is no log.
class TrialLog {
 public:
  explicit TrialLog(std::filesystem::path path);

  Result<void> begin(const RecordKey& key, const RecordEnvironment& environment);
  Result<void> append(const Trial& trial);

 private:
  std::filesystem::path path_;
};

}  // namespace kernwright
