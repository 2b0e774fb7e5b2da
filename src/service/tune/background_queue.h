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

/// Works on problems on a thread of its own, on one after another and on each once, until its
/// budget is used up. Thread-safe. Destruction ends it.
class BackgroundQueue {
 public:
  /// Works on one problem, gives up soon after `stop` becomes true, and returns the seconds of the
  /// budget that it used.
  using Work = std::function<double(const Problem& normalized, const std::atomic<bool>& stop)>;

  BackgroundQueue(double budget_seconds, Work work)
      : work_(std::move(work)), left_seconds_(budget_seconds) {}
  ~BackgroundQueue();
  BackgroundQueue(const BackgroundQueue&) = delete;
  BackgroundQueue& operator=(const BackgroundQueue&) = delete;

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

  const Work work_;
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
