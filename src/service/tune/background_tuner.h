#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "support/mutex.h"
#include "support/processes/threads.h"
#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright {

/// Tunes problems on a thread of its own, one after another, each once, until its budget of GPU
/// time is used up. Thread-safe. Destruction ends it.
class BackgroundTuner {
 public:
  /// Tunes one problem, gives up soon after `stop` becomes true, and returns the seconds that the
  /// GPU was held.
  using Tune = std::function<double(const Problem& normalized, const std::atomic<bool>& stop)>;

  BackgroundTuner(double budget_seconds, Tune tune)
      : tune_(std::move(tune)), left_seconds_(budget_seconds) {}
  ~BackgroundTuner();
  BackgroundTuner(const BackgroundTuner&) = delete;
  BackgroundTuner& operator=(const BackgroundTuner&) = delete;

  /// Does nothing if it was asked for the same problem before. Starts the thread when it is first
  /// asked. Errors: if the thread cannot be started; the problem may be asked for again then.
  Result<void> ask(const Problem& normalized);

  /// Drops the problems that have not begun, stops the one that has, and takes no more. Does not
  /// wait.
  void end();

  /// Waits until nothing is left to do.
  void wait();

 private:
  void run();

  const Tune tune_;
  std::atomic<bool> stop_{false};
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Problem> waiting_ KW_GUARDED_BY(mutex_);
  std::set<std::string> asked_ KW_GUARDED_BY(mutex_);
  double left_seconds_ KW_GUARDED_BY(mutex_);
  bool busy_ KW_GUARDED_BY(mutex_) = false;
  bool started_ KW_GUARDED_BY(mutex_) = false;
  Thread thread_;  // last: it uses all others
};

}  // namespace kernwright
