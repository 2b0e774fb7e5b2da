#pragma once

#include <map>
#include <string>
#include <utility>

#include "cache/stores/lookup_log.h"
#include "support/mutex.h"
#include <kernwright/result.h>

namespace kernwright {

/// Appends what a service is asked for to a log: a problem when it is first asked for, and at the
/// end how often it was asked for since. So a process that is killed loses counts alone.
/// Thread-safe.
class ShapeRecorder {
 public:
  explicit ShapeRecorder(LookupLog log) : log_(std::move(log)) {}
  ~ShapeRecorder() { static_cast<void>(flush()); }
  ShapeRecorder(const ShapeRecorder&) = delete;
  ShapeRecorder& operator=(const ShapeRecorder&) = delete;

  /// Errors: from the log.
  Result<void> add(const LoggedLookup& lookup);
  /// Appends the counts that are not in the log yet. Errors: from the log.
  Result<void> flush();

 private:
  const LookupLog log_;
  Mutex mutex_;
  /// By problem, with what is to be counted.
  std::map<std::string, LoggedLookup> unwritten_ KW_GUARDED_BY(mutex_);
};

}  // namespace kernwright
