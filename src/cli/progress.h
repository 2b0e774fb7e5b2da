#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "service/serve/core.h"
#include "support/processes/threads.h"
#include "tuner/search/search.h"

namespace kernwright::cli {

/// A line on standard error. On a terminal each update replaces it. Elsewhere it is printed at most
/// every ten seconds, for the first time at once or, with `patient`, after ten seconds.
class ProgressLine {
 public:
  explicit ProgressLine(bool patient = false);
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Shows `text`; `seconds` is the time since the start.
  void update(std::string_view text, double seconds);
  /// Removes the line from a terminal, so that other lines can be printed.
  void clear();

 private:
  bool terminal_;
  bool dirty_ = false;
  double printed_;
};

/// Shows `line(seconds since the start)` once a second until it is destroyed, from a thread of its
/// own. Where no thread can be started there is no line; the work itself then reports the limit.
class Ticker {
 public:
  explicit Ticker(std::function<std::string(double seconds)> line);
  ~Ticker();
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  void run();

  std::function<std::string(double)> text_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  Thread thread_;  // last, because it uses all others
};

/// From now on Ctrl-C ends the program with exit status 130 and `message` on standard error. Only
/// unfinished work is lost, because files are always published whole. To be called once.
void end_on_interrupt(std::string_view message);

/// Tunes, or predicts where the service has no GPU. Shows progress unless `quiet`.
Result<TuningResult> tune_or_predict(ServiceCore& service, const Problem& problem,
                                     TuningOptions options, bool quiet);

}  // namespace kernwright::cli
