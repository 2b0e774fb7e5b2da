#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "service/serve/core.h"
#include "support/processes/threads.h"
#include "tuner/session/search.h"

namespace kernwright::cli {

/// A line on standard error that replaces itself on a terminal; elsewhere printed at most every
/// ten seconds, the first at once or, with `patient`, after these.
class ProgressLine {
 public:
  explicit ProgressLine(bool patient = false);
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// At `seconds` from its start.
  void update(std::string_view text, double seconds);
  /// Takes it off a terminal, so that other lines can be printed.
  void clear();

 private:
  bool terminal_;
  bool dirty_ = false;
  double printed_;
};

/// Shows `line` of the seconds since its start once a second, from the first on, until it is
/// destroyed: also while nobody has anything to tell. Where no thread can be started there is no
/// line; the work itself then says which limit was met.
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
  Thread thread_;  // last: it uses all others
};

/// From here on Ctrl-C ends the program with exit status 130 and `message` on standard error. What
/// is half done is lost and nothing else, as with any other end: files are published whole. To be
/// called once.
void end_on_interrupt(std::string_view message);

/// Tunes, or predicts where the service has no GPU, showing progress unless `quiet`.
Result<TuningResult> tune_or_predict(ServiceCore& service, const Problem& problem,
                                     TuningOptions options, bool quiet);

}  // namespace kernwright::cli
