#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "service/serve/core.h"
#include "support/mutex.h"
#include "support/processes/threads.h"

namespace kernwright::cli {

/// A line on standard error that each update replaces. If standard output or standard error is not
/// a terminal, there is no line, since it would end up in a file or a log.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Shows `text`; `seconds` is the time since the start.
  void update(std::string_view text, double seconds);
  /// Removes the line, so that other lines can be printed.
  void clear();

 private:
  bool shown_;
  bool dirty_ = false;
  double printed_;
};

/// Shows `line()` once a second, unless it is empty, until it is destroyed, from a thread of its
/// own. If no thread can be started there is no line; the work itself then reports the limit.
class Ticker {
 public:
  explicit Ticker(std::function<std::string()> line);
  ~Ticker();
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

  /// Calls `print` while the line is away.
  void aside(const std::function<void()>& print);

 private:
  void run();

  std::function<std::string()> text_;
  Mutex mutex_;  ///< not held while `text_` runs
  std::condition_variable_any ended_;
  ProgressLine line_ KW_GUARDED_BY(mutex_);
  bool end_ KW_GUARDED_BY(mutex_) = false;
  Thread thread_;  // last, because it uses all others
};

/// The state of a search so far, for a line of progress: candidates, the best so far, the time
/// left. One search at a time; any thread may ask for the line.
class SearchWatch {
 public:
  /// Begins a search, which reports through `options`. `measures`: on a GPU; else it predicts.
  void begin(const Problem& problem, bool measures, TuningOptions& options);
  void end();

  /// Returns "matmul: 96 of 412 candidates, best 255.1 us, 12 s left"; empty if no search runs.
  std::string line() const;

 private:
  mutable Mutex mutex_;
  std::string operation_ KW_GUARDED_BY(mutex_);
  bool measures_ KW_GUARDED_BY(mutex_) = false;
  double budget_seconds_ KW_GUARDED_BY(mutex_) = 0;
  std::chrono::steady_clock::time_point start_ KW_GUARDED_BY(mutex_);
  std::optional<TuningProgress> seen_ KW_GUARDED_BY(mutex_);
};

/// Tunes, or predicts if the service has no GPU. Reports the progress to `watch`.
Result<TuningResult> tune_or_predict(ServiceCore& service, const Problem& problem,
                                     TuningOptions options, SearchWatch& watch);

}  // namespace kernwright::cli
